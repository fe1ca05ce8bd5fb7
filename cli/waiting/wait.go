package waiting

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
)

type waitVerb struct {
	*session.Globals
	in      session.Input
	degrees []string
	any     anyOf
	count   int
	missing bool
	timeout time.Duration
	Patience
}

// Command returns the command wait.
func Command(g *session.Globals) *cobra.Command {
	w := &waitVerb{Globals: g}
	cmd := &cobra.Command{
		Use:   "wait TYPE/NAME… | TYPE NAME… | TYPE -l SELECTOR | -f FILE --for=DEGREE…",
		Short: "Wait until objects are ready, running, finished, deleted, …, or have failed",
		Long: "Wait until every object has reached the given degree, and print why objects have not reached it yet. The wait\n" +
			"ends as soon as the result is certain.\n\n" +
			"  --for=accepted, observed       the server has stored the object; its controller has observed the latest change\n" +
			"  --for=scheduled, running       its pods have nodes; its pods are running or have run\n" +
			"  --for=ready                    ready, by the rules of its kind; every kind has this\n" +
			"  --for=settled=30s              ready for this long without a break\n" +
			"  --for=serving                  ready, and in the endpoints of its services\n" +
			"  --for=old-gone                 ready, and no pod of an older revision is left\n" +
			"  --for=finished, complete       ended successfully; a failed object is reported as failed, with exit code 2\n" +
			"  --for=deleted, delete          the object does not exist; a new one of the same name does not count\n" +
			"  --for=created, create          the object exists; with another --for it means --wait-for-creation\n" +
			"  --for=condition=NAME[=VALUE]   a condition in status.conditions; failed is condition=Failed\n" +
			"  --for=jsonpath=PATH[=VALUE]    a field; also PATH!=V, <, >, <=, >=, 'PATH exists', 'PATH absent'\n" +
			"  --for=cel=EXPRESSION           a CEL expression over object: 'object.status.replicas >= 3'\n" +
			"  --for='any(complete, failed)'  one of these; all(…) means all of them at the same time\n\n" +
			"Several --for must all be reached at the same time; with --any one of them is enough. With one --for, --any means\n" +
			"that one object is enough. --count=N is for selectors: N objects are enough.\n\n" +
			"On a terminal a tree shows the objects and the parts that hold them up; otherwise there is a line per change. -o json\n" +
			"prints a stream of events, one JSON object per line, the last with \"type\":\"result\".\n\n" +
			"Exit codes: 0 done, 1 wrong use, no connection or no permission, 2 failed for good, 3 timed out, 4 nothing matched or\n" +
			"deleted, 5 automatically rolled back, 130 interrupted.",
		Example: "  sampan wait rc/web --for=ready\n" +
			"  sampan wait job/build --for='any(complete, failed)' --timeout=10m\n" +
			"  sampan wait pods -l app=web --for=ready --count=3 --wait-for-creation --logs",
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	w.in.FileFlags(f)
	w.in.SelectorFlags(f)
	f.BoolVar(&w.in.All, "all", false, "select all objects of the type in the namespace")
	f.StringArrayVar(&w.degrees, "for", nil, "what to wait for (required)")
	anyFlag := f.VarPF(&w.any, "any", "", "one of several --for is enough or, with one --for, one of several objects; --any=degrees and --any=objects choose explicitly")
	anyFlag.NoOptDefVal = "true"
	f.IntVar(&w.count, "count", 0, "how many of the selected objects must be done; 0 means all, and at least one")
	f.BoolVar(&w.missing, "wait-for-creation", false, "also wait for objects, namespaces and kinds that do not exist yet")
	f.DurationVar(&w.timeout, "timeout", 30*time.Second, "how long to wait for all objects; 0 checks once, a negative value means no limit")
	w.Patience.AddFlags(f)
	return cmd
}

// An anyOf is the value of --any: one of several objects, or one of several degrees, is enough.
type anyOf string

func (a *anyOf) String() string { return string(*a) }
func (a *anyOf) Type() string   { return "objects|degrees" }

// Set implements pflag.Value.
func (a *anyOf) Set(text string) error {
	switch text {
	case "true", "objects", "degrees":
		*a = anyOf(text)
	case "false":
		*a = ""
	default:
		return errors.New("want objects or degrees")
	}
	return nil
}

// A Patience has the flags for likely failures and for the output of a wait.
type Patience struct {
	Fail  string
	Grace time.Duration
	Logs  bool
	Quiet bool
}

// AddFlags adds --fail, --grace, --logs and --quiet.
func (p *Patience) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&p.Fail, "fail", "grace", "when a likely failure (image pull, crash loop) ends the wait: now, grace (after --grace) or never")
	f.DurationVar(&p.Grace, "grace", await.DefaultGrace, "how long a likely failure may last")
	f.BoolVar(&p.Logs, "logs", false, "print the logs of pods that are not ready while waiting")
	f.BoolVarP(&p.Quiet, "quiet", "q", false, "print the result only")
}

// Apply sets the fields of a request from the flags. An error names the invalid flag.
func (p *Patience) Apply(req *await.Request) error {
	switch p.Fail {
	case "now":
		req.Fail = await.FailAtOnce
	case "grace":
		req.Fail = await.FailAfterGrace
	case "never":
		req.Fail = await.FailNever
	default:
		return fmt.Errorf("--fail=%s: want now, grace or never", p.Fail)
	}
	switch {
	case p.Grace < 0:
		return fmt.Errorf("--grace=%v: want 0 or more", p.Grace)
	case p.Grace == 0 && req.Fail == await.FailAfterGrace:
		req.Fail = await.FailAtOnce
	}
	req.Grace = p.Grace
	return nil
}

// order reads the flags.
func (w *waitVerb) order() (req await.Request, talk Talk, err error) {
	if len(w.degrees) == 0 {
		return req, talk, errors.New("--for is required: ready, running, finished, deleted, condition=NAME, …")
	}
	talk = Talk{Quiet: w.Quiet, Logs: w.Logs}
	var degrees []await.Degree
	for _, text := range w.degrees {
		d, err := await.ParseDegree(text)
		if err != nil {
			return req, talk, fmt.Errorf("--for: %w", err)
		}
		word, _, _ := strings.Cut(strings.ToLower(text), "=")
		talk.kubectl = len(w.degrees) == 1 && (word == "delete" || word == "create") // kubectl's words get kubectl's output
		talk.exact = talk.exact || d.LooksAtFields()
		if d == await.Created && len(w.degrees) > 1 && (w.any == "" || w.any == "objects") {
			w.missing = true // like kubectl, which waits for the creation first
			continue
		}
		degrees = append(degrees, d)
	}
	if len(degrees) == 0 {
		degrees = []await.Degree{await.Created}
	}
	switch {
	case w.any == "degrees", w.any == "true" && len(degrees) > 1:
		req.For = await.Any(degrees...)
	default:
		req.For = await.All(degrees...)
		req.Any = w.any != ""
	}
	if w.count < 0 {
		return req, talk, fmt.Errorf("--count=%d: want 1 or more", w.count)
	}
	if w.count > 0 && req.Any {
		return req, talk, errors.New("--count and --any were given: want one of them")
	}
	req.Count, req.Missing = w.count, w.missing
	switch {
	case w.timeout == 0:
		req.Once = true
	case w.timeout > 0:
		req.Timeout = w.timeout
	}
	if talk.Events, err = EventsOf(w.Globals); err != nil {
		return req, talk, err
	}
	return req, talk, w.Apply(&req)
}

// EventsOf returns the stream of events for -o json, nil without -o, and an error for another format.
func EventsOf(g *session.Globals) (*Events, error) {
	switch g.Output {
	case "":
		return nil, nil // nil means text
	case "json":
		return newEventStream(g), nil
	}
	return nil, fmt.Errorf("-o %s: want json, for a stream of events, or nothing", g.Output)
}

func (w *waitVerb) run(ctx context.Context, args []string) error {
	req, talk, err := w.order()
	if err != nil {
		return exit.Usage("sampan wait", err)
	}
	w.Within(w.timeout)
	s, err := w.Connect()
	if err != nil {
		return err
	}
	if req.Targets, err = targets(ctx, s, w.in, args, req.Missing); err != nil {
		return err
	}
	if len(req.Targets) == 0 { // files without objects
		if req.For == await.Deleted {
			return nil
		}
		return exit.With(exit.Gone, errors.New("no matching resources found"))
	}
	if req.Count > 0 {
		selects := false
		for _, t := range req.Targets {
			selects = selects || t.Name == ""
		}
		if !selects {
			return exit.Usage("sampan wait", errors.New("--count needs a selector: -l, --field-selector or --all"))
		}
	}
	if req.Missing {
		req.Resolve = func(ctx context.Context, t await.Target) (await.Target, error) { return resolve(ctx, s, t) }
	}
	return For(ctx, s, req, talk)
}

// targets returns the targets of the arguments. With missing, their kinds need not exist.
func targets(ctx context.Context, s *session.Session, in session.Input, args []string, missing bool) ([]await.Target, error) {
	var (
		targets []await.Target
		errs    []error
	)
	each := [][]string{args}
	if missing && len(args) > 1 && strings.Contains(args[0], "/") {
		each = nil // one at a time, to find the argument with an unknown kind
		for _, a := range args {
			each = append(each, []string{a})
		}
	}
	for _, args := range each {
		for i, err := range resource.Stream(ctx, s.Mapper, s.Request(in, args)) {
			var (
				noKind *resource.NoKindError
				noType *resource.NoTypeError
			)
			switch {
			case err == nil && i.Name == "" && !i.Selection:
				errs = append(errs, fmt.Errorf("%s: an object without a name cannot be waited for", i.Source))
			case err == nil:
				targets = append(targets, TargetOf(i))
			case missing && errors.As(err, &noKind) && i.Object != nil && i.Object.GetName() != "":
				t := await.Target{Kind: noKind.Kind.Kind, Namespace: i.Object.GetNamespace(), Name: i.Object.GetName()}
				t.Resource.Group, t.Resource.Version = noKind.Kind.Group, noKind.Kind.Version
				if t.Namespace == "" {
					t.Namespace = s.Namespace
				}
				targets = append(targets, t)
			case missing && errors.As(err, &noType):
				targets = append(targets, unknown(s, in, args, noType.Name)...)
			default:
				errs = append(errs, err)
			}
		}
	}
	return targets, errors.Join(errs...)
}

// unknown returns the targets of arguments with a type that the server does not serve yet.
func unknown(s *session.Session, in session.Input, args []string, word string) []await.Target {
	t := await.Target{Kind: word, Namespace: s.Namespace}
	if _, name, found := strings.Cut(args[0], "/"); found {
		t.Name = name
		return []await.Target{t}
	}
	if len(args) == 1 {
		t.Labels, t.Fields = in.Labels, in.Fields
		if in.AllNamespaces {
			t.Namespace = ""
		}
		return []await.Target{t}
	}
	var all []await.Target
	for _, name := range args[1:] {
		t.Name = name
		all = append(all, t)
	}
	return all
}

// resolve finds the resource of a target by a new discovery request.
func resolve(ctx context.Context, s *session.Session, t await.Target) (await.Target, error) {
	m := resource.NewMapper(s.REST)
	var (
		mapping resource.Mapping
		err     error
	)
	if t.Resource.Version != "" {
		mapping, err = m.ByKind(ctx, schema.GroupVersionKind{Group: t.Resource.Group, Version: t.Resource.Version, Kind: t.Kind})
	} else {
		mapping, err = m.ByName(ctx, t.Kind)
	}
	var (
		noKind *resource.NoKindError
		noType *resource.NoTypeError
	)
	if errors.As(err, &noKind) || errors.As(err, &noType) {
		return t, &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: t.Resource.Group, Kind: t.Kind}}
	}
	if err != nil {
		return t, err
	}
	t.Resource, t.Kind = mapping.GroupVersionResource, mapping.Kind
	if !mapping.Namespaced {
		t.Namespace = ""
	}
	return t, nil
}

// TargetOf returns the target for an input.
func TargetOf(i resource.Info) await.Target {
	return await.Target{
		Resource: i.Mapping.GroupVersionResource, Kind: i.Mapping.Kind, Namespace: i.Namespace,
		Name: i.Name, Labels: i.Labels, Fields: i.Fields,
	}
}
