package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/cli/apply"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/cli/waiting"
)

type applyVerb struct {
	*session.Globals
	in         session.Input
	serverSide way
	force      bool // take fields of others
	recreate   bool
	labels     string
	manager    string
	dryRun     session.DryRun
	validate   session.Strictness
	prune      bool
	set        string

	wrote waiting.Listener // may be nil
}

// Apply returns the verb apply.
func Apply(g *session.Globals) *cobra.Command {
	a := &applyVerb{Globals: g}
	cmd := &cobra.Command{
		Use:   "apply -f FILE | -k DIRECTORY",
		Short: "Apply objects from files, creating missing ones",
		Long: "Apply YAML or JSON files: create the objects that do not exist, and set the others to the configuration in the files.\n" +
			"Fields that others manage are left alone. Fields that an earlier apply set are removed once the files no longer have\n" +
			"them.\n\n" +
			"Apply uses server-side apply if the server has it, and three-way merges otherwise. Objects that were last applied with\n" +
			"three-way merges, by kubectl or by sampan, are migrated to server-side apply. --server-side=false uses only three-way\n" +
			"merges. Fields that other commands of sampan and kubectl have set, such as create, scale or edit, are taken over,\n" +
			"unless --server-side is given: then they are conflicts, as with kubectl.\n\n" +
			"Objects are applied in the order of their dependencies: namespaces and CustomResourceDefinitions (which must be\n" +
			"established) first, then the objects that pods use, workloads, custom resources, and at last webhooks and the like.\n\n" +
			"With --prune --applyset=NAME the members of the set are recorded in a Secret (or in TYPE/NAME). After all objects were\n" +
			"applied, the objects of the set that are no longer in the files are deleted.",
		Example: "  sampan apply -f web.yaml\n  sampan apply -k overlays/test --dry-run=server\n" +
			"  sampan apply -f . -R -n shop --prune --applyset=shop",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.wrongUse(); err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			return a.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	a.in.FileFlags(f)
	a.PrintFlags(f)
	a.serverSide.flag(f)
	f.BoolVar(&a.force, "force-conflicts", false, "server-side apply: take ownership of conflicting fields instead of failing")
	f.BoolVar(&a.recreate, "force", false, "delete and recreate objects that the server refuses to update, waiting for the deletion; not with --server-side")
	f.StringVarP(&a.labels, "selector", "l", "", "only objects in the files that match this label selector (a=b, a!=b, a in (b,c), a)")
	f.StringVar(&a.manager, "field-manager", "", "name of the manager used to track field ownership (default "+
		apply.ServerSideManager+", for three-way merges "+apply.ThreeWayManager+")")
	a.dryRun.AddFlag(cmd)
	a.validate.AddFlag(cmd)
	f.BoolVar(&a.prune, "prune", false, "delete objects of the set that are no longer in the files; needs --applyset")
	f.StringVar(&a.set, "applyset", "", "[TYPE[.GROUP]/]NAME of the parent object that records the members of the set; a Secret if no type is given")
	waiting.AddFlags(g, cmd, &a.wrote, waiting.Options{Done: "applied", Timeout: waiting.DefaultTimeout})
	return cmd
}

func (a *applyVerb) wrongUse() error {
	switch {
	case !a.in.Given():
		return errors.New("must specify one of -f and -k")
	case a.set != "" && !a.prune:
		return errors.New("--applyset requires --prune")
	case a.prune && a.set == "":
		return errors.New("--prune requires --applyset=NAME, which records the members of the set")
	case a.prune && a.labels != "":
		return errors.New("--selector is incompatible with --applyset: all objects in the files are members of the set")
	case a.prune && a.recreate:
		return errors.New("--force cannot be used with --prune")
	}
	if _, err := labels.Parse(a.labels); err != nil {
		return fmt.Errorf("--selector=%s: %w", a.labels, err)
	}
	return nil
}

func (a *applyVerb) run(ctx context.Context) error {
	f, err := a.Format()
	if err != nil {
		return err
	}
	s, err := a.Connect()
	if err != nil {
		return err
	}
	opts := apply.Options{
		Client: s.REST, Mapper: s.Mapper, Way: apply.Way(a.serverSide), Manager: a.manager, Force: a.force, Recreate: a.recreate,
		DryRun: degreeOf(a.dryRun), Validation: string(a.validate), Warn: s.Warn,
	}
	applier, err := apply.New(opts)
	if err != nil {
		return exit.Usage("sampan apply", err)
	}
	p := &applying{applyVerb: a, format: f, list: !f.IsTable() && f.Kind != "name"}
	set := &apply.Set{Applier: applier, Request: s.Request(a.in, nil), Check: func(ctx context.Context, i resource.Info) error { return s.Check(ctx, a.validate, i) }}
	selector, err := labels.Parse(a.labels)
	if err != nil {
		return err
	}
	for info, err := range resource.Stream(ctx, s.Mapper, set.Request) {
		if info.Object == nil || selector.Matches(labels.Set(info.Object.GetLabels())) {
			p.fail(set.Add(info, err))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	p.fail(set.Prepare())
	if set.Len() == 0 && len(p.errs) == 0 {
		return errors.New("no objects passed to apply")
	}
	var members *apply.ApplySet
	if a.prune {
		if members, err = a.open(ctx, s, opts, set); err != nil {
			return errors.Join(append(p.errs, err)...)
		}
	}
	for done, err := range set.Apply(ctx) {
		p.take(done, err)
	}
	if members != nil && len(p.errs) > 0 {
		p.fail(errors.New("nothing was pruned, because not everything was applied"))
	} else if members != nil {
		for done, err := range members.Prune(ctx, p.written) {
			p.take(done, err)
		}
	}
	return p.end()
}

// open makes the objects members of the set that was named.
func (a *applyVerb) open(ctx context.Context, s *session.Session, opts apply.Options, set *apply.Set) (*apply.ApplySet, error) {
	parent, err := apply.ParseParent(ctx, s.Mapper, a.set, s.Namespace)
	if err != nil {
		return nil, err
	}
	members, err := apply.OpenSet(ctx, opts, parent, a.Version)
	if err != nil {
		return nil, err
	}
	return members, members.Begin(ctx, set.Infos())
}

// applying collects the results of an apply.
type applying struct {
	*applyVerb
	format  show.Format
	list    bool // objects are printed in the end
	written []resource.Written
	errs    []error

	mappings []resource.Mapping // of the objects to print
	objs     []*unstructured.Unstructured
}

func (p *applying) fail(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// take records and prints the result for one object.
func (p *applying) take(done apply.Applied, err error) {
	obj := done.Result.Object
	if err != nil || obj == nil {
		p.fail(err)
		return
	}
	m := done.Info.Mapping
	w := m.WrittenAs(obj)
	w.Deleted = done.Result.Action == apply.Pruned
	if !w.Deleted {
		p.written = append(p.written, w)
	}
	if p.wrote != nil && p.dryRun == "none" {
		p.wrote(w)
	}
	switch {
	case p.list && w.Deleted:
		_, _ = fmt.Fprintf(p.Err, "%s pruned%s\n", w, p.dryRun.Note())
	case p.list:
		p.mappings, p.objs = append(p.mappings, m), append(p.objs, obj)
	default:
		p.fail(p.Say(p.format, p.dryRun, m, obj, string(done.Result.Action)))
	}
}

func (p *applying) end() error {
	if p.list && len(p.objs) > 0 {
		p.fail(p.format.PrintAll(p.Out, p.mappings, p.objs, true, true))
	}
	return errors.Join(p.errs...)
}

// A way is what --server-side says; not given means whatever the server can.
type way apply.Way

func (w *way) flag(f *pflag.FlagSet) {
	flag := f.VarPF(w, "server-side", "", "use server-side apply, and fail if the server does not have it; =false uses three-way merges (default: server-side apply if the server has it)")
	flag.NoOptDefVal = "true"
	flag.DefValue = ""
}

func (w *way) String() string {
	switch apply.Way(*w) {
	case apply.ServerSide:
		return "true"
	case apply.ThreeWay:
		return "false"
	case apply.Auto:
	}
	return ""
}

func (w *way) Type() string { return "bool" }

// Set implements pflag.Value.
func (w *way) Set(text string) error {
	switch text {
	case "true":
		*w = way(apply.ServerSide)
	case "false":
		*w = way(apply.ThreeWay)
	default:
		return errors.New("must be true or false")
	}
	return nil
}

// degreeOf returns how far package apply goes.
func degreeOf(d session.DryRun) apply.DryRun {
	switch d {
	case "client":
		return apply.OnClient
	case "server":
		return apply.OnServer
	}
	return apply.ForReal
}
