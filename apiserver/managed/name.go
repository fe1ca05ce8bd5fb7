package managed

import (
	"strings"
	"unicode"
	"unicode/utf8"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// Name returns the manager for whom a write counts that is no apply: the one whom the
// request names, or else what its User-Agent begins with, up to a slash, as Kubernetes
// has it. The account calls whoever has no name "unknown".
func Name(manager, agent string) string {
	if manager != "" {
		return manager
	}
	agent, _, _ = strings.Cut(agent, "/")
	if len(agent) <= metavalidation.FieldManagerMaxLength && isPrintable(agent) {
		return agent
	}
	var name strings.Builder
	for _, r := range agent {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > metavalidation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(r)
	}
	return name.String()
}

func isPrintable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
