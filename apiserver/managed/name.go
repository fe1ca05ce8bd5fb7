package managed

import (
	"strings"
	"unicode"
	"unicode/utf8"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// Name returns the manager of a write other than an apply: the one that the request names, or else
// the User-Agent up to its first slash, as in Kubernetes. It is "unknown" in the managed fields if
// there is neither.
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
