package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/cli/resource"
)

// replace writes whole objects over those that are there.
type replace struct{ create }

func replaceCommand(g *Globals) *cobra.Command {
	r := &replace{create{Globals: g}}
	cmd := &cobra.Command{
		Use:   "replace -f FILE | -k DIRECTORY",
		Short: "Replace objects by those in files",
		Long: "Replace objects that exist by those in YAML or JSON files, whole: what the file does not say goes. A file that says a\n" +
			"metadata.resourceVersion replaces that version only.",
		Example: "  sampan get cm conf -o yaml > conf.yaml; vi conf.yaml; sampan replace -f conf.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !r.in.given() {
				return &usageError{cmd.CommandPath(), errors.New("must specify one of -f and -k")}
			}
			return r.run(cmd.Context())
		},
	}
	r.in.fileFlag(cmd.Flags())
	r.makeFlags(cmd, "kubectl-replace")
	g.waits(cmd, &r.wrote, waitOptions{done: "replaced", timeout: writeTimeout})
	return cmd
}

func (r *replace) run(ctx context.Context) error {
	f, err := formatOf(r.Output)
	if err != nil {
		return err
	}
	s, err := r.connect()
	if err != nil {
		return err
	}
	var errs []error
	for info, err := range resource.Stream(ctx, s.mapper, s.request(r.in, nil)) {
		if err == nil {
			err = r.one(ctx, s, f, info)
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

func (r *replace) one(ctx context.Context, s *session, f format, info resource.Info) error {
	if info.Name == "" {
		return info.Fault(errors.New("metadata.name is not set: an object that is replaced needs a name"), "metadata")
	}
	if err := s.check(ctx, r.validate, info); err != nil {
		return err
	}
	obj, err := r.annotated(info)
	if err != nil {
		return err
	}
	if r.dryRun != "client" {
		got, err := s.Update(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, obj,
			metav1.UpdateOptions{DryRun: r.dryRun.option(), FieldValidation: string(r.validate), FieldManager: r.manager}, "")
		if err != nil {
			return info.Fault(err)
		}
		u, ok := got.(*unstructured.Unstructured)
		if !ok {
			return notAnObject(info, got)
		}
		obj = u
	}
	if r.dryRun == "none" {
		r.wrote.tell(info.Mapping, obj)
	}
	return r.say(f, r.dryRun, info.Mapping, obj, "replaced")
}
