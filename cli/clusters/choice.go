package clusters

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/cluster/local"
)

// otherCurrent returns the cluster of this machine that the kubeconfig's current context, or --context, names, if the command
// line does not say by --name or --data-dir that it is about p, which is another cluster: commands such as get are about the
// context, and commands such as down are about the name.
func otherCurrent(cmd *cobra.Command, p local.Profile) (local.Found, bool) {
	for _, name := range []string{"name", "data-dir"} {
		if f := cmd.Flag(name); f != nil && f.Changed {
			return local.Found{}, false
		}
	}
	return currentOther(cmd, p)
}

// currentOther returns the cluster of this machine that the kubeconfig's current context, or --context, names, if that is not p.
func currentOther(cmd *cobra.Command, p local.Profile) (local.Found, bool) {
	context := flag(cmd, "context")
	if context == "" {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = flag(cmd, "kubeconfig")
		rules.Warner = func(error) {}
		config, err := rules.Load()
		if err != nil {
			return local.Found{}, false // then it has no current context
		}
		context = config.CurrentContext
	}
	if context == "" || context == p.Context() {
		return local.Found{}, false
	}
	clusters, _ := p.Clusters() // one that cannot be read is not asked about
	for _, c := range clusters {
		if c.Context() == context {
			return c, true
		}
	}
	return local.Found{}, false
}

// hintOther says that the current context is that of another cluster than the one that a command is about.
func hintOther(cmd *cobra.Command, p local.Profile) {
	if other, differs := otherCurrent(cmd, p); differs {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the current context is that of cluster %s: --name=%[1]s means that one\n", other.Name)
	}
}

// confirm asks on a terminal whether a command shall stop a cluster though the current context is that of another one. Without
// a terminal it is an error that says how to choose.
func confirm(cmd *cobra.Command, p local.Profile, other local.Found, what string) error {
	choose := fmt.Errorf("the current context is that of cluster %s, and this command would %s cluster %s: pass --name=%[3]s or --name=%[1]s; nothing was changed", other.Name, what, p.Name)
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return choose
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "The current context is that of cluster %s. %s cluster %s? [y/N] ", other.Name, strings.ToUpper(what[:1])+what[1:], p.Name)
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	if err != nil {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr())
	}
	return choose
}

// versionDiffers returns a warning about a running cluster of another version of the program than this one, or "".
func versionDiffers(o Options, p local.Profile, i local.Instance) string {
	if i.Version == o.Version || i.Version == "" || i.Damage != "" {
		return ""
	}
	what := fmt.Sprintf("cluster %s runs version %s, and this program is version %s: ", p.Name, i.Version, o.Version)
	if i.Simulated {
		return what + fmt.Sprintf("to change it, run `sampan down%s` and then `sampan up%[1]s`", p.NameFlag())
	}
	return what + fmt.Sprintf("to change it, run `sampan down%s` and then `sampan up%[1]s`, or `kill %d` and then `sampan up%[1]s` to keep the pods running", p.NameFlag(), i.Process.PID)
}
