package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/cli/apply"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/waiting"
)

// Replace returns the verb replace.
func Replace(g *session.Globals) *cobra.Command {
	r := replacing(g)
	var raw string
	cmd := &cobra.Command{
		Use:   "replace -f FILE | -k DIRECTORY",
		Short: "Replace objects with those in files",
		Long: "Replace existing objects with those in YAML or JSON files. The whole object is replaced: fields that are not in the\n" +
			"file are removed. If the file has a metadata.resourceVersion, the object is only replaced at that version.\n\n" +
			"With --force each object is deleted, and created again when it is gone; one that does not exist is created. If the\n" +
			"server refuses the new object, the old one is created again.",
		Example: "  sampan get cm conf -o yaml > conf.yaml; vi conf.yaml; sampan replace -f conf.yaml\n  sampan replace --force -f pod.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.force.misuse(cmd, &r); err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			if cmd.Flags().Changed("raw") {
				return r.raw(cmd, http.MethodPut, raw)
			}
			return r.fromFiles(cmd, args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&r.force.on, "force", false, "delete the objects, and create them again when they are gone")
	f.Int64Var(&r.force.grace, "grace-period", -1, "with --force: seconds that an object gets to terminate gracefully; negative means its own grace period, 0 means 1")
	f.StringVar(&r.force.cascade, "cascade", "background", "with --force: how to delete dependents: background, foreground, or orphan to keep them")
	f.Lookup("cascade").NoOptDefVal = "background"
	f.DurationVar(&r.force.timeout, "timeout", waiting.DefaultTimeout, "with --force, how long to wait for the deletion of each object; with --wait, how long to wait for all objects; 0 means no limit")
	f.StringVar(&r.subresource, "subresource", "", "replace this subresource of the objects, such as status or resize")
	f.StringVar(&raw, "raw", "", "PUT the file given with -f unchanged to this path of the server, and print the response")
	r.files(cmd, "kubectl-replace")
	return cmd
}

// A forced is what flags say about --force of replace.
type forced struct {
	on      bool
	grace   int64
	cascade string
	timeout time.Duration
}

// misuse returns an error for flags that do not go together, in kubectl's words.
func (f *forced) misuse(cmd *cobra.Command, p *put) error {
	wait := cmd.Flags().Changed("wait")
	switch {
	case !f.on && f.grace >= 0:
		return errors.New("--grace-period must have --force specified")
	case !f.on && cmd.Flags().Changed("cascade"):
		return errors.New("--cascade must have --force specified")
	case !f.on && !wait && cmd.Flags().Changed("timeout"):
		return errors.New("--timeout must have --force or --wait specified")
	case f.timeout < 0:
		return fmt.Errorf("--timeout=%v: want 0 or more", f.timeout)
	case f.on && p.dryRun != "none":
		return errors.New("--dry-run can not be used when --force is set")
	case f.on && p.subresource != "":
		return errors.New("--subresource can not be used when --force is set")
	}
	_, err := f.options()
	return err
}

// options returns how objects are deleted.
func (f *forced) options() (metav1.DeleteOptions, error) {
	return (&deletion{cascade: f.cascade, grace: f.grace}).options()
}

// recreate deletes an object, if it exists, and creates it.
func (p *put) recreate(ctx context.Context, s *session.Session, info resource.Info, obj *unstructured.Unstructured) (made runtime.Object, err error) {
	create := func() error {
		fresh := obj.DeepCopy()
		for _, field := range []string{"resourceVersion", "uid"} { // those of the deleted object
			unstructured.RemoveNestedField(fresh.Object, "metadata", field)
		}
		made, err = s.Create(ctx, info.Mapping.GroupVersionResource, info.Namespace, "", fresh,
			metav1.CreateOptions{FieldValidation: string(p.validate), FieldManager: p.manager}, "")
		return err
	}
	live, err := s.Get(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, "")
	if apierrors.IsNotFound(err) {
		err = create()
		return made, err
	}
	if err != nil {
		return nil, err
	}
	u, ok := live.(*unstructured.Unstructured)
	if !ok {
		return nil, session.NotAnObject(info, live)
	}
	opts, err := p.force.options()
	if err != nil {
		return nil, err
	}
	limit := p.force.timeout
	if limit == 0 {
		limit = 1<<63 - 1 // none
	}
	err = apply.Recreation{
		Client: s, Object: info, Live: u, Delete: opts, Limit: limit, Again: "replace it again", Manager: p.manager,
		Deleted: func() { p.sayDeleted(info) },
	}.Do(ctx, create)
	return made, err
}

// sayDeleted prints that an object was deleted, as kubectl does.
func (p *put) sayDeleted(info resource.Info) {
	if p.Output == "" {
		_, _ = fmt.Fprintln(p.Out, deletedLine(info, "deleted"))
	}
}
