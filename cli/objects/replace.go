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
		Short: "Replace objects with those in files",
		Long: "Replace existing objects with those in YAML or JSON files. The whole object is replaced: fields that are not in the\n" +
			"file are removed. If the file has a metadata.resourceVersion, the object is only replaced at that version.",
		Example: "  sampan get cm conf -o yaml > conf.yaml; vi conf.yaml; sampan replace -f conf.yaml",
		Args:    cobra.NoArgs,
		RunE:    r.fromFiles,
	}
	r.files(cmd, "kubectl-replace")
	return cmd
}
