package session

import (
	"strings"

	"github.com/spf13/pflag"
)

// repeated are the global flags without which another command would go to another server, or as another user. Passwords
// and tokens are not among them: they are not to be printed.
func repeated() []string {
	return []string{
		"kubeconfig", "context", "cluster", "user", "server", "certificate-authority", "tls-server-name", "insecure-skip-tls-verify",
		"client-certificate", "client-key", "as", "as-group", "as-uid",
	}
}

// Hint returns the beginning of a command line to suggest: "sampan", the verb, and the flags that say which server and
// user, as they were given. The namespace is added if it was given with a flag, or if it is another one than that of the
// session; it is empty for what has none.
func (s *Session) Hint(verb, namespace string) string {
	words := append([]string{"sampan", verb}, s.where...)
	if namespace != "" && (s.Enforced || namespace != s.Namespace) {
		words = append(words, "-n", quoted(namespace))
	}
	return strings.Join(words, " ")
}

// given returns the flags that say which server and user, as they were given.
func (g *Globals) given() (words []string) {
	if g.flags == nil {
		return nil
	}
	for _, name := range repeated() {
		f := g.flags.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+name+"="+quoted(v))
		}
	}
	return words
}

// quoted returns a word as a shell reads it back.
func quoted(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,%+", r))
	}) {
		return word
	}
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "$", `\$`, "`", "\\`").Replace(word) + `"`
}
