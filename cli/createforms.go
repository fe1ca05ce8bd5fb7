package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/cli/resource"
)

// makeFlags are those of verbs that make an object from flags.
func (c *create) makeFlags(cmd *cobra.Command, manager string) {
	c.dryRun.flag(cmd)
	c.validate.flag(cmd)
	cmd.Flags().StringVar(&c.manager, "field-manager", manager, "name under which the server notes who wrote the fields")
	cmd.Flags().BoolVar(&c.saveConfig, "save-config", false, "note in the object what it was made from, for an apply by three-way merge later")
}

// make creates an object that was put together from flags. In a dry run on the client
// it needs no cluster.
func (c *create) make(ctx context.Context, m resource.Mapping, obj runtime.Object) error {
	f, err := formatOf(c.Output)
	if err != nil {
		return err
	}
	u, err := resource.Unstructured(obj)
	if err != nil {
		return err
	}
	info := resource.Info{Mapping: m, Name: u.GetName(), Object: u, Source: m.Called(u.GetName())}
	if m.Namespaced && c.Namespace != "" {
		u.SetNamespace(c.Namespace)
	}
	if c.dryRun == "client" {
		return c.put(ctx, nil, f, info)
	}
	s, err := c.connect()
	if err != nil {
		return err
	}
	if m.Namespaced {
		info.Namespace = s.namespace
		u.SetNamespace(s.namespace)
	}
	return c.put(ctx, s, f, info)
}

// formCommand returns the verb of a form, with those of the forms below it.
func formCommand(g *Globals, form manifest.Form) *cobra.Command {
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
			return &usageError{cmd.CommandPath(), fmt.Errorf("say what kind of it: %s", strings.Join(words, ", "))}
		}
		return cmd
	}
	c := &create{Globals: g}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		before := args
		if dash := cmd.ArgsLenAtDash(); form.Command && dash >= 0 {
			before = args[:dash]
		}
		if len(before) != 1 {
			return &usageError{cmd.CommandPath(), fmt.Errorf("exactly one NAME is required, got %d", len(before))}
		}
		obj, err := form.Object(args[0], args[len(before):])
		if err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		return c.make(cmd.Context(), form.Mapping, obj)
	}
	if form.Flags != nil {
		form.Flags(cmd.Flags())
	}
	c.makeFlags(cmd, "kubectl-create")
	g.waits(cmd, &c.wrote, waitOptions{done: "created", timeout: writeTimeout})
	return cmd
}

// createForms returns the verbs under create.
func createForms(g *Globals) []*cobra.Command {
	var cmds []*cobra.Command
	for _, form := range manifest.Forms() {
		cmds = append(cmds, formCommand(g, form))
	}
	return cmds
}
