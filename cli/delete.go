package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

type deletion struct {
	*Globals
	in             input
	grace          int64
	now, force     bool
	cascade        string
	ignoreNotFound bool
	dryRun         dryRun

	wrote writtenTo // nil if nobody wants to know
}

func deleteCommand(g *Globals) *cobra.Command {
	d := &deletion{Globals: g}
	cmd := &cobra.Command{
		Use:   "delete TYPE/NAME… | TYPE NAME… | TYPE -l SELECTOR | TYPE --all | -f FILE | -k DIRECTORY",
		Short: "Delete objects and wait until they are gone",
		Long: "Delete objects, and wait until exactly these objects are gone: one of the same name that is made meanwhile is\n" +
			"another. --wait=false returns when the server has accepted the deletion.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	d.in.fileFlag(f)
	d.in.selectorFlags(f)
	f.BoolVar(&d.in.all, "all", false, "everything of the type in the namespace")
	f.Int64Var(&d.grace, "grace-period", -1, "seconds that pods get to end; less than 0 leaves it to them, 0 needs --force")
	f.BoolVar(&d.now, "now", false, "the same as --grace-period=1")
	f.BoolVar(&d.force, "force", false, "take pods out of the API at once, without knowing that they have ended")
	f.StringVar(&d.cascade, "cascade", "background", "what happens to dependents: background, foreground, orphan")
	f.Lookup("cascade").NoOptDefVal = "background"
	f.BoolVar(&d.ignoreNotFound, "ignore-not-found", false, "what does not exist is no error")
	d.dryRun.flag(cmd)
	g.waits(cmd, &d.wrote, waitOptions{always: true, never: func() bool { return d.force || d.dryRun != "none" }})
	return cmd
}

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
	o.DryRun = d.dryRun.option()
	return o, nil
}

func (d *deletion) run(ctx context.Context, args []string) error {
	f, err := formatOf(d.Output)
	if err != nil {
		return err
	}
	if !f.table() && f.kind != "name" {
		return fmt.Errorf("unexpected -o output mode: %s. We only support '-o name'", d.Output)
	}
	opts, err := d.options()
	if err != nil {
		return &usageError{"sampan delete", err}
	}
	s, err := d.connect()
	if err != nil {
		return err
	}
	infos, err := s.infos(ctx, d.in, args)
	if err != nil && !d.in.given() {
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
	)
	for _, err := range listed(err) {
		var none *resource.NoKindError
		if !d.ignoreNotFound || !errors.As(err, &none) { // what no server knows does not exist
			errs = append(errs, err)
		}
	}
	for _, i := range infos {
		if i.Object != nil && i.Name == "" {
			errs = append(errs, i.Fault(errors.New("metadata.name is not set: an object that is deleted needs a name"), "metadata"))
			continue
		}
		if s.enforced && !i.Mapping.Namespaced && !warned {
			warned = true
			s.warn("deleting cluster-scoped resources, not scoped to the provided namespace")
		}
		objs, err := s.present(ctx, i)
		if err != nil && (!d.ignoreNotFound || !apierrors.IsNotFound(err)) {
			errs = append(errs, err)
		}
		found += len(objs)
		for _, o := range objs {
			i.Name, i.Namespace = o.GetName(), o.GetNamespace()
			if err := d.one(ctx, s, i, o, opts, f); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if found == 0 && len(errs) == 0 && !d.ignoreNotFound {
		_, _ = fmt.Fprintln(d.Err, "No resources found")
	}
	return errors.Join(errs...)
}

// listed returns the errors that one joins.
func listed(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// present returns the objects that an input means, as they are now.
func (s *session) present(ctx context.Context, i resource.Info) ([]client.Object, error) {
	if !i.Selection {
		o, err := s.Get(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, "")
		if err != nil {
			return nil, err
		}
		return []client.Object{o.(client.Object)}, nil // every object of the API has metadata
	}
	list, _, err := s.List(ctx, i.Mapping.GroupVersionResource, i.Namespace, metav1.ListOptions{LabelSelector: i.Labels, FieldSelector: i.Fields})
	objs := make([]client.Object, len(list))
	for n, o := range list {
		objs[n] = o.(client.Object) // every object of the API has metadata
	}
	return objs, err
}

// one deletes exactly this object.
func (d *deletion) one(ctx context.Context, s *session, i resource.Info, o client.Object, opts metav1.DeleteOptions, f format) error {
	uid := o.GetUID()
	opts.Preconditions = &metav1.Preconditions{UID: &uid}
	if d.dryRun != "client" {
		switch err := s.Delete(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, opts); {
		case apierrors.IsNotFound(err): // somebody was faster; it is what was wanted
		case err != nil:
			return err
		}
	}
	switch f.kind {
	case "name":
		_, _ = fmt.Fprintln(d.Out, i.Mapping.Called(i.Name))
	default:
		kind, _, _ := strings.Cut(i.Mapping.Called(i.Name), "/")
		where, verb := "", "deleted"
		if i.Mapping.Namespaced {
			where = fmt.Sprintf(" from %s namespace", i.Namespace)
		}
		if d.force {
			verb = "force deleted"
		}
		_, _ = fmt.Fprintf(d.Out, "%s %q %s%s%s\n", kind, i.Name, verb, where, d.dryRun.note())
	}
	if d.wrote != nil && d.dryRun == "none" {
		w := i.Mapping.WrittenAs(o)
		w.Deleted = true
		d.wrote(w)
	}
	return nil
}
