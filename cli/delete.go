package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

type deletion struct {
	*Globals
	in             input
	grace          int64
	now, force     bool
	cascade        string
	wait           bool
	timeout        time.Duration
	ignoreNotFound bool
	dryRun         dryRun
}

func deleteCommand(g *Globals) *cobra.Command {
	d := &deletion{Globals: g}
	cmd := &cobra.Command{
		Use:   "delete TYPE/NAME… | TYPE NAME… | TYPE -l SELECTOR | TYPE --all | -f FILE",
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
	f.BoolVar(&d.wait, "wait", true, "wait until the objects are gone")
	f.DurationVar(&d.timeout, "timeout", 0, "how long to wait; 0 waits for ever")
	f.BoolVar(&d.ignoreNotFound, "ignore-not-found", false, "what does not exist is no error")
	d.dryRun.flag(cmd)
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
	case d.timeout < 0:
		return o, fmt.Errorf("--timeout=%v: want 0 or more", d.timeout)
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
	if err != nil {
		return err // a deletion that was asked for wrongly is not begun
	}
	if d.force {
		_, _ = fmt.Fprintln(d.Err, "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. "+
			"The resource may continue to run on the cluster indefinitely.")
	}
	var (
		errs  []error
		gone  []await.Target
		found int
	)
	for _, i := range infos {
		objs, err := s.present(ctx, i)
		if err != nil && (!d.ignoreNotFound || !apierrors.IsNotFound(err)) {
			errs = append(errs, err)
		}
		found += len(objs)
		for _, o := range objs {
			i.Name, i.Namespace = o.GetName(), o.GetNamespace()
			t, err := d.one(ctx, s, i, o, opts, f)
			switch {
			case err != nil:
				errs = append(errs, err)
			case t.Name != "":
				gone = append(gone, t)
			}
		}
	}
	if found == 0 && len(errs) == 0 && !d.ignoreNotFound {
		_, _ = fmt.Fprintln(d.Err, "No resources found")
	}
	if d.wait && !d.force && len(gone) > 0 {
		errs = append(errs, s.await(ctx, await.Request{For: await.Deleted, Targets: gone, Timeout: d.timeout}, waitTalk{quiet: true, silent: true}))
	}
	return errors.Join(errs...)
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

// one deletes exactly this object and returns what is to be waited for.
func (d *deletion) one(ctx context.Context, s *session, i resource.Info, o client.Object, opts metav1.DeleteOptions, f format) (await.Target, error) {
	uid := o.GetUID()
	opts.Preconditions = &metav1.Preconditions{UID: &uid}
	if d.dryRun != "client" {
		switch err := s.Delete(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, opts); {
		case apierrors.IsNotFound(err): // somebody was faster; it is what was wanted
		case err != nil:
			return await.Target{}, err
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
	if d.dryRun != "none" {
		return await.Target{}, nil
	}
	t := targetOf(resource.Info{Mapping: i.Mapping, Namespace: i.Namespace, Name: i.Name})
	t.UID = uid
	return t, nil
}
