package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/cli/waiting"
	"github.com/sampan-io/sampan/client"
)

type deletion struct {
	*session.Globals
	in             session.Input
	grace          int64
	now, force     bool
	cascade        string
	ignoreNotFound bool
	dryRun         session.DryRun

	wrote waiting.Listener // may be nil
}

// Delete returns the verb delete.
func Delete(g *session.Globals) *cobra.Command {
	d := &deletion{Globals: g}
	cmd := &cobra.Command{
		Use:   "delete TYPE/NAME… | TYPE NAME… | TYPE -l SELECTOR | TYPE --all | -f FILE | -k DIRECTORY",
		Short: "Delete objects and wait until they are deleted",
		Long: "Delete objects and wait until they are deleted. An object that is created with the same name meanwhile is not waited\n" +
			"for. --wait=false returns as soon as the server has accepted the deletion.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	d.in.FileFlags(f)
	d.in.SelectorFlags(f)
	f.BoolVar(&d.in.All, "all", false, "all objects of the type in the namespace")
	f.Int64Var(&d.grace, "grace-period", -1, "seconds that the object gets to terminate gracefully; negative means its own grace period, 0 needs --force")
	f.BoolVar(&d.now, "now", false, "the same as --grace-period=1")
	f.BoolVar(&d.force, "force", false, "remove pods from the API immediately, without waiting until their containers have stopped")
	f.StringVar(&d.cascade, "cascade", "background", "how to delete dependents: background, foreground, or orphan to keep them")
	f.Lookup("cascade").NoOptDefVal = "background"
	f.BoolVar(&d.ignoreNotFound, "ignore-not-found", false, "treat objects that do not exist as deleted")
	d.dryRun.AddFlag(cmd)
	waiting.AddFlags(g, cmd, &d.wrote, waiting.Options{Always: true, Never: func() bool { return d.force || d.dryRun != "none" }})
	return cmd
}

// definitions are the definitions of custom resources. Each is named RESOURCE.GROUP, as the resource that it defines.
var definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

func (d *deletion) options() (metav1.DeleteOptions, error) {
	var o metav1.DeleteOptions
	policy, known := map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground, "true": metav1.DeletePropagationBackground,
		"foreground": metav1.DeletePropagationForeground,
		"orphan":     metav1.DeletePropagationOrphan, "false": metav1.DeletePropagationOrphan,
	}[d.cascade]
	switch {
	case !known:
		return o, fmt.Errorf("--cascade=%s: want background, foreground or orphan", d.cascade)
	case d.now && d.grace != -1:
		return o, errors.New("--now and --grace-period cannot be specified together")
	case d.grace == 0 && !d.force:
		d.grace = 1 // 0 means not to wait for the node, which --force asks for
	case d.force && d.grace > 0:
		return o, errors.New("--force and --grace-period greater than 0 cannot be specified together")
	}
	if d.now {
		d.grace = 1
	}
	if d.force {
		d.grace = 0
	}
	if d.grace >= 0 {
		o.GracePeriodSeconds = &d.grace
	}
	o.PropagationPolicy = &policy
	o.DryRun = d.dryRun.Option()
	return o, nil
}

func (d *deletion) run(ctx context.Context, args []string) error {
	f, err := d.Format()
	if err != nil {
		return err
	}
	if !f.IsTable() && f.Kind != "name" {
		return fmt.Errorf("unexpected -o output mode: %s. We only support '-o name'", d.Output)
	}
	opts, err := d.options()
	if err != nil {
		return exit.Usage("sampan delete", err)
	}
	s, err := d.Connect()
	if err != nil {
		return err
	}
	infos, err := s.Infos(ctx, d.in, args)
	if err != nil && !d.in.Given() {
		return err // a deletion that was asked for wrongly is not begun
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d.force {
		_, _ = fmt.Fprintln(d.Err, "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. "+
			"The resource may continue to run on the cluster indefinitely.")
	}
	var (
		errs   []error
		found  int
		warned bool

		defined = map[string]bool{} // the resources of deleted definitions: RESOURCE.GROUP
	)
	for _, err := range session.Listed(err) {
		var none *resource.NoKindError
		if !d.ignoreNotFound || !errors.As(err, &none) { // what no server knows does not exist
			errs = append(errs, err)
		}
	}
	for _, i := range infos {
		if i.Object != nil && i.Name == "" {
			errs = append(errs, i.Fault(errors.New("metadata.name: must be set to delete the object"), "metadata"))
			continue
		}
		if s.Enforced && !i.Mapping.Namespaced && !warned {
			warned = true
			s.Warn("deleting cluster-scoped resources, not scoped to the provided namespace")
		}
		objs, err := s.Present(ctx, i)
		switch {
		case err == nil:
		case apierrors.IsNotFound(err) && defined[i.Mapping.GroupResource().String()]:
			found++ // it was deleted with its definition
		case !d.ignoreNotFound || !apierrors.IsNotFound(err):
			errs = append(errs, err)
		}
		found += len(objs)
		for _, o := range objs {
			i.Name, i.Namespace = o.GetName(), o.GetNamespace()
			if err := d.one(ctx, s, i, o, opts, f); err != nil {
				errs = append(errs, err)
				continue
			}
			if i.Mapping.GroupResource() == definitions {
				defined[o.GetName()] = true
			}
		}
	}
	if found == 0 && len(errs) == 0 && !d.ignoreNotFound {
		_, _ = fmt.Fprintln(d.Err, "No resources found")
	}
	return errors.Join(errs...)
}

// deletedLine returns kubectl's line about a deleted object.
func deletedLine(i resource.Info, verb string) string {
	kind, _, _ := strings.Cut(i.Mapping.Called(i.Name), "/")
	where := ""
	if i.Mapping.Namespaced {
		where = fmt.Sprintf(" from %s namespace", i.Namespace)
	}
	return fmt.Sprintf("%s %q %s%s", kind, i.Name, verb, where)
}

// one deletes exactly this object.
func (d *deletion) one(ctx context.Context, s *session.Session, i resource.Info, o client.Object, opts metav1.DeleteOptions, f show.Format) error {
	uid := o.GetUID()
	opts.Preconditions = &metav1.Preconditions{UID: &uid}
	if d.dryRun != "client" {
		switch err := s.Delete(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, opts); {
		case apierrors.IsNotFound(err): // already deleted by another client
		case err != nil:
			return err
		}
	}
	switch f.Kind {
	case "name":
		_, _ = fmt.Fprintln(d.Out, i.Mapping.Called(i.Name))
	default:
		verb := "deleted"
		if d.force {
			verb = "force deleted"
		}
		_, _ = fmt.Fprintf(d.Out, "%s%s\n", deletedLine(i, verb), d.dryRun.Note())
	}
	if d.wrote != nil && d.dryRun == "none" {
		w := i.Mapping.WrittenAs(o)
		w.Deleted = true
		d.wrote(w)
	}
	return nil
}
