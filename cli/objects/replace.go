package objects

import (
	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/session"
)

// Replace returns the verb replace.
func Replace(g *session.Globals) *cobra.Command {
	r := replacing(g)
	cmd := &cobra.Command{
		Use:   "replace -f FILE | -k DIRECTORY",
		Short: "Replace objects by those in files",
		Long: "Replace objects that exist by those in YAML or JSON files, whole: what the file does not say goes. A file that says a\n" +
			"metadata.resourceVersion replaces that version only.",
		Example: "  sampan get cm conf -o yaml > conf.yaml; vi conf.yaml; sampan replace -f conf.yaml",
		Args:    cobra.NoArgs,
		RunE:    r.fromFiles,
	}
	r.files(cmd, "kubectl-replace")
	return cmd
}
