package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/cli/apply"
	"github.com/sampan-io/sampan/cli/resource"
)

type create struct {
	*Globals
	in         input
	dryRun     dryRun
	validate   strictness
	manager    string
	saveConfig bool

	wrote writtenTo // nil if nobody wants to know
}

func createCommand(g *Globals) *cobra.Command {
	c := &create{Globals: g}
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !c.in.given() {
				return &usageError{cmd.CommandPath(), errors.New("must specify one of -f and -k")}
			}
			return c.run(cmd.Context())
		},
	}
	c.in.fileFlag(cmd.Flags())
	c.makeFlags(cmd, "kubectl-create")
	cmd.AddCommand(createForms(g)...)
	g.waits(cmd, &c.wrote, waitOptions{done: "created", timeout: writeTimeout})
	return cmd
}

func (c *create) run(ctx context.Context) error {
	f, err := formatOf(c.Output)
	if err != nil {
		return err
	}
	s, err := c.connect()
	if err != nil {
		return err
	}
	var errs []error
	for info, err := range resource.Stream(ctx, s.mapper, s.request(c.in, nil)) {
		if err == nil {
			err = c.one(ctx, s, f, info)
		}
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	return errors.Join(errs...)
}

func (c *create) one(ctx context.Context, s *session, f format, info resource.Info) error {
	if err := s.check(ctx, c.validate, info); err != nil {
		return err
	}
	return c.put(ctx, s, f, info)
}

// put creates an object and prints it. The session is not used in a dry run on the
// client.
func (c *create) put(ctx context.Context, s *session, f format, info resource.Info) error {
	obj, err := c.annotated(info)
	if err != nil {
		return err
	}
	if c.dryRun != "client" {
		got, err := s.Create(ctx, info.Mapping.GroupVersionResource, info.Namespace, "", obj,
			metav1.CreateOptions{DryRun: c.dryRun.option(), FieldValidation: string(c.validate), FieldManager: c.manager}, "")
		if err != nil {
			return info.Fault(err)
		}
		u, ok := got.(*unstructured.Unstructured)
		if !ok {
			return notAnObject(info, got)
		}
		obj = u
	}
	if c.dryRun == "none" {
		c.wrote.tell(info.Mapping, obj)
	}
	return c.say(f, c.dryRun, info.Mapping, obj, "created")
}

// annotated returns the object as it is to be sent.
func (c *create) annotated(info resource.Info) (*unstructured.Unstructured, error) {
	if !c.saveConfig {
		return info.Object, nil
	}
	obj, err := apply.Annotated(info.Object)
	return obj, info.Fault(err)
}

// say prints an object that a verb has written in the chosen format.
func (g *Globals) say(f format, d dryRun, m resource.Mapping, obj *unstructured.Unstructured, done string) error {
	if !f.table() {
		return f.print(g.Out, m, obj)
	}
	name := obj.GetName()
	if name == "" {
		name = obj.GetGenerateName()
	}
	_, err := fmt.Fprintf(g.Out, "%s %s%s\n", m.Called(name), done, d.note())
	return err
}

// A dryRun is "none", "client" or "server".
type dryRun string

func (d *dryRun) flag(cmd *cobra.Command) {
	*d = "none"
	f := cmd.Flags().VarPF(d, "dry-run", "", "only say what would be done: client asks nothing of the server, server has it check everything")
	f.NoOptDefVal = "client"
}

func (d *dryRun) String() string { return string(*d) }
func (d *dryRun) Type() string   { return "none|client|server" }

// Set implements pflag.Value.
func (d *dryRun) Set(text string) error {
	switch text {
	case "none", "client", "server":
		*d = dryRun(text)
		return nil
	case "true":
		*d = "client"
		return nil
	case "false":
		*d = "none"
		return nil
	}
	return errors.New("want none, client or server")
}

func (d dryRun) option() []string {
	if d == "server" {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func (d dryRun) note() string {
	switch d {
	case "client":
		return " (dry run)"
	case "server":
		return " (server dry run)"
	}
	return ""
}
