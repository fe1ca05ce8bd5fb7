package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/cli/resource"
)

type create struct {
	*Globals
	in       input
	dryRun   dryRun
	validate string
}

func createCommand(g *Globals) *cobra.Command {
	c := &create{Globals: g}
	cmd := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Create objects from files or the standard input",
		Long: "Create objects from YAML or JSON files, or from the standard input with '-f -'. Files may hold several\n" +
			"documents and Lists. A document that cannot be used is reported and does not keep the others from being created.",
		Example: "  sampan create -f web.yaml\n  cat web.yaml | sampan create -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(c.in.files) == 0 {
				return &usageError{cmd.CommandPath(), errors.New("must specify -f FILE")}
			}
			return c.run(cmd.Context())
		},
	}
	c.in.fileFlag(cmd.Flags())
	c.dryRun.flag(cmd)
	cmd.Flags().StringVar(&c.validate, "validate", "strict", "what the server does with unknown or duplicate fields: strict refuses, warn, ignore")
	return cmd
}

func (c *create) run(ctx context.Context) error {
	f, err := formatOf(c.Output)
	if err != nil {
		return err
	}
	validation, err := fieldValidation(c.validate)
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
			err = c.one(ctx, s, f, validation, info)
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

func (c *create) one(ctx context.Context, s *session, f format, validation string, info resource.Info) error {
	obj := info.Object
	if c.dryRun != "client" {
		got, err := s.Create(ctx, info.Mapping.GroupVersionResource, info.Namespace, "", obj,
			metav1.CreateOptions{DryRun: c.dryRun.option(), FieldValidation: validation}, "")
		if err != nil {
			return &resource.SourceError{Place: info.Source, Err: err}
		}
		u, ok := got.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("%s: the server answered with a %T", info.Source, got)
		}
		obj = u
	}
	if !f.table() {
		return f.print(c.Out, info.Mapping, obj)
	}
	name := obj.GetName()
	if name == "" {
		name = obj.GetGenerateName()
	}
	_, err := fmt.Fprintf(c.Out, "%s created%s\n", info.Mapping.Called(name), c.dryRun.note())
	return err
}

func fieldValidation(text string) (string, error) {
	switch text {
	case "strict", "true":
		return metav1.FieldValidationStrict, nil
	case "warn":
		return metav1.FieldValidationWarn, nil
	case "ignore", "false":
		return metav1.FieldValidationIgnore, nil
	}
	return "", fmt.Errorf("--validate=%s: want strict, warn or ignore", text)
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
