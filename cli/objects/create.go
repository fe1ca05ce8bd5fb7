package objects

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/cli/session"
)

// Create returns the verb create, with the verbs below it that make objects of flags.
func Create(g *session.Globals) *cobra.Command {
	c := creating(g)
	cmd := &cobra.Command{
		Use:   "create -f FILE | -k DIRECTORY",
		Short: "Create objects from files or the standard input",
		Long: "Create objects from YAML or JSON files, directories of them, addresses, a kustomization, or from the standard\n" +
			"input with '-f -'. Files may hold several documents and Lists. They are read one by one, so that they may be of\n" +
			"any size. A document that cannot be used is reported and does not keep the others from being created.\n\n" +
			"The verbs below make objects of common kinds from flags; with --dry-run=client -o yaml they write the beginnings of\n" +
			"files, and need no cluster for it.",
		Example: "  sampan create -f web.yaml\n  cat web.yaml | sampan create -f -\n  sampan create configmap conf --from-literal=a=b",
		Args:    cobra.NoArgs,
		RunE:    c.fromFiles,
	}
	c.files(cmd, "kubectl-create")
	for _, form := range manifest.Forms() {
		cmd.AddCommand(formCommand(g, form))
	}
	return cmd
}

// formCommand returns the verb of a form, with those of the forms below it.
func formCommand(g *session.Globals, form manifest.Form) *cobra.Command {
	cmd := &cobra.Command{Use: form.Use, Short: form.Short, Aliases: form.Aliases}
	if len(form.Below) > 0 {
		cmd.Args = cobra.NoArgs
		var words []string
		for _, below := range form.Below {
			c := formCommand(g, below)
			cmd.AddCommand(c)
			words = append(words, c.Name())
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			return exit.Usage(cmd.CommandPath(), fmt.Errorf("say what kind of it: %s", strings.Join(words, ", ")))
		}
		return cmd
	}
	c := creating(g)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		before := args
		if dash := cmd.ArgsLenAtDash(); form.Command && dash >= 0 {
			before = args[:dash]
		}
		if len(before) != 1 {
			return exit.Usage(cmd.CommandPath(), fmt.Errorf("exactly one NAME is required, got %d", len(before)))
		}
		obj, err := form.Object(args[0], args[len(before):])
		if err != nil {
			return exit.Usage(cmd.CommandPath(), err)
		}
		return c.made(cmd.Context(), form.Mapping, obj)
	}
	if form.Flags != nil {
		form.Flags(cmd.Flags())
	}
	c.flags(cmd, "kubectl-create")
	return cmd
}
