package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cluster/local"
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

// ClusterFlag returns " --name=NAME" if the kubeconfig context is that of a cluster of this machine with another name than the
// default one, for a command line that is about that cluster. Otherwise it returns "".
func (g *Globals) ClusterFlag() string {
	if g.server.url != "" {
		return "" // the context does not say which cluster it is
	}
	context := g.context()
	if context == "" {
		raw, _ := g.loader().RawConfig() // without one no context is the current one
		context = raw.CurrentContext
	}
	for _, c := range clusters() {
		if c.Context() == context {
			return c.NameFlag()
		}
	}
	return ""
}

// clusters returns the clusters of this machine.
func clusters() []local.Found {
	home, err := local.NewProfile("", "")
	if err != nil {
		return nil
	}
	all, _ := home.Clusters() // it does not matter if others cannot be read
	return all
}

// Clusters returns the names of the clusters of this machine.
func (g *Globals) Clusters() (names []string) {
	for _, c := range clusters() {
		names = append(names, c.Name)
	}
	return names
}

// Contexts returns the names of the contexts in the kubeconfig, ascending.
func (g *Globals) Contexts() []string {
	raw, err := g.loader().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Contexts))
}

// KubeconfigClusters returns the names of the clusters in the kubeconfig, ascending.
func (g *Globals) KubeconfigClusters() []string {
	raw, err := g.loader().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Clusters))
}

// KubeconfigUsers returns the names of the users in the kubeconfig, ascending.
func (g *Globals) KubeconfigUsers() []string {
	raw, err := g.loader().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.AuthInfos))
}

// given returns the flags that say which server and user, as they were given.
func (g *Globals) given() (words []string) {
	if g.flags == nil {
		return nil
	}
	if context := g.context(); context != "" && g.Context == "" {
		words = append(words, "--name="+quoted(g.Name)) // it names the context
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
