package clusters

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// connection are the global flags that choose a server and a user for commands about objects.
func connection() []string {
	return []string{
		"as", "as-group", "as-uid", "certificate-authority", "client-certificate", "client-key", "cluster", "context", "insecure-skip-tls-verify",
		"kubeconfig", "server", "tls-server-name", "token", "user",
	}
}

// onThisMachine makes each verb refuse the flags of a connection that it does not read. The verbs are about the cluster of this
// machine that --name names, and a user who passes --context means another one. Reads are the flags that a verb reads,
// by its name, for it and the verbs below it.
func onThisMachine(verbs []*cobra.Command, reads map[string][]string) []*cobra.Command {
	for _, v := range verbs {
		refuseConnection(v, reads[v.Name()])
	}
	return verbs
}

func refuseConnection(cmd *cobra.Command, reads []string) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
				if err == nil && f.Changed && slices.Contains(connection(), f.Name) && !slices.Contains(reads, f.Name) {
					err = fmt.Errorf("--%s: this command is about the cluster of this machine that --name names", f.Name)
				}
			})
			return err
		}
	}
	for _, sub := range cmd.Commands() {
		refuseConnection(sub, reads)
	}
}
