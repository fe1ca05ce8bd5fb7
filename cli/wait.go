package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/resource"
)

type waitVerb struct {
	*Globals
	in      input
	degree  string
	timeout time.Duration
	fail    string
	grace   time.Duration
	quiet   bool
}

func waitCommand(g *Globals) *cobra.Command {
	w := &waitVerb{Globals: g}
	cmd := &cobra.Command{
		Use:   "wait TYPE/NAME… | TYPE NAME… | TYPE -l SELECTOR | -f FILE --for=DEGREE",
		Short: "Wait until objects are ready, running, finished, gone, …, or certain to fail",
		Long: "Wait until every object has reached a degree of being done, saying what is waited for and why it is not there\n" +
			"yet, a line per change. The wait ends the moment it is decided.\n\n" +
			"  --for=ready                    it does what it is there for\n" +
			"  --for=running                  it has started; a Job that has run counts\n" +
			"  --for=finished, complete       it has ended well; ending badly is a failure\n" +
			"  --for=deleted, delete          the object (not one of the same name made later) is gone\n" +
			"  --for=created, create          it exists\n" +
			"  --for=condition=NAME[=VALUE]   as status.conditions says\n" +
			"  --for=jsonpath=PATH[=VALUE]    as a field says\n\n" +
			"Exit codes: 0 done, 1 wrong use or no connection, 2 failed for good, 3 timed out, 4 nothing matched or gone.",
		Example: "  sampan wait rc/web --for=ready\n  sampan wait job/build --for=finished --timeout=10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	w.in.fileFlag(f)
	w.in.selectorFlags(f)
	f.BoolVar(&w.in.all, "all", false, "everything of the type in the namespace")
	f.StringVar(&w.degree, "for", "", "what to wait for (required)")
	f.DurationVar(&w.timeout, "timeout", 30*time.Second, "how long to wait for the whole set; 0 looks once, less than 0 waits for ever")
	f.StringVar(&w.fail, "fail", "grace", "what a likely failure (image pull, crash loop) does: now ends the wait, grace ends it if it lasts, never")
	f.DurationVar(&w.grace, "grace", await.DefaultGrace, "how long a likely failure may last")
	f.BoolVarP(&w.quiet, "quiet", "q", false, "print the result only")
	return cmd
}

func (w *waitVerb) run(ctx context.Context, args []string) error {
	if w.degree == "" {
		return &usageError{"sampan wait", errors.New("say what to wait for: --for=ready, running, finished, deleted, condition=NAME, …")}
	}
	degree, err := await.ParseDegree(w.degree)
	if err != nil {
		return &usageError{"sampan wait", fmt.Errorf("--for: %w", err)}
	}
	req := await.Request{For: degree, Grace: w.grace, Timeout: w.timeout}
	switch {
	case w.timeout == 0:
		req.Once = true
	case w.timeout < 0:
		req.Timeout = 0
	}
	var known bool
	if req.Fail, known = failMode(w.fail); !known {
		return &usageError{"sampan wait", fmt.Errorf("--fail=%s: want now, grace or never", w.fail)}
	}
	s, err := w.connect()
	if err != nil {
		return err
	}
	infos, err := s.infos(ctx, w.in, args)
	if err != nil {
		return err
	}
	for _, i := range infos {
		if i.Name == "" && !i.Selection {
			return fmt.Errorf("%s: an object without a name cannot be waited for", i.Source)
		}
		req.Targets = append(req.Targets, targetOf(i))
	}
	said := w.degree == "delete" || w.degree == "create" // kubectl's words get kubectl's answer
	return s.await(ctx, req, waitTalk{quiet: w.quiet, kubectl: said})
}

func failMode(text string) (await.FailMode, bool) {
	switch text {
	case "now":
		return await.FailAtOnce, true
	case "grace":
		return await.FailAfterGrace, true
	case "never":
		return await.FailNever, true
	}
	return 0, false
}

func targetOf(i resource.Info) await.Target {
	return await.Target{
		Resource: i.Mapping.GroupVersionResource, Kind: i.Mapping.Kind, Namespace: i.Namespace,
		Name: i.Name, Labels: i.Labels, Fields: i.Fields,
	}
}

// A waitTalk is how a wait is talked about.
type waitTalk struct {
	quiet   bool // no progress
	silent  bool // not even the result of what went well
	kubectl bool // "condition met", whatever the degree
}

// await waits, prints what it waits for and how it ended, and turns that into an
// error with the right exit code.
func (s *session) await(ctx context.Context, req await.Request, talk waitTalk) error {
	reached := req.For.Reached()
	if talk.kubectl {
		reached = "condition met"
	}
	out, err := await.Until(ctx, s.REST, req, func(p await.Progress) {
		switch {
		case p.Lost != nil:
			_, _ = fmt.Fprintf(s.Err, "lost the server, trying again: %v\n", p.Lost)
		case p.Verdict.State == await.Done && !talk.silent:
			_, _ = fmt.Fprintf(s.Out, "%s %s\n", p.Object, reached)
		case p.Verdict.State == await.Done, talk.quiet, p.Absent && !reqWaitsForAbsent(req):
		default:
			_, _ = fmt.Fprintf(s.Err, "waiting for %s to %s: %s\n", p.Object, req.For.Infinitive(), cmp.Or(p.Verdict.Cause, "no word of it yet"))
		}
	})
	var misuse *await.MisuseError
	switch {
	case errors.As(err, &misuse):
		return fmt.Errorf("--for=%s: %w", req.For, err)
	case err != nil:
		return err
	}
	return endOf(req, out)
}

func reqWaitsForAbsent(req await.Request) bool { return req.For == await.Created }

// endOf turns the outcome of a wait into an error, nil if all is done.
func endOf(req await.Request, out await.Outcome) error {
	var errs []error
	switch out.Result {
	case await.AllDone:
		return nil
	case await.NothingMatched:
		return &exitError{exitGone, errors.New("no matching resources found")}
	case await.Vanished:
		for _, p := range out.Objects {
			switch {
			case !p.Absent:
			case p.Object.UID == "":
				errs = append(errs, apierrors.NewNotFound(p.Object.Resource.GroupResource(), p.Object.Name))
			default:
				errs = append(errs, fmt.Errorf("%s was deleted while it was waited for", p.Object))
			}
		}
		return &exitError{exitGone, errors.Join(errs...)}
	case await.SomeFailed:
		for _, p := range out.Objects {
			if p.Verdict.State == await.Failed {
				errs = append(errs, fmt.Errorf("%s will not %s: %s%s", p.Object, req.For.Infinitive(), p.Verdict.Cause, lookAt(p.Object)))
			}
		}
		return &exitError{exitFailed, errors.Join(errs...)}
	case await.TimedOut:
		for _, p := range out.Objects {
			if p.Verdict.State != await.Done {
				errs = append(errs, fmt.Errorf("timed out waiting for %s to %s: %s", p.Object, req.For.Infinitive(), cmp.Or(p.Verdict.Cause, "no word of it yet")))
			}
		}
		if len(errs) == 0 {
			errs = append(errs, errors.New("timed out waiting: nothing matches any more"))
		}
		return &exitError{exitTimedOut, errors.Join(errs...)}
	}
	return fmt.Errorf("the wait ended in an unknown way: %v", out.Result)
}

// lookAt is the command that shows more of a failure, where there is one.
func lookAt(r await.Ref) string {
	switch r.Kind {
	case "Pod", "Job", "ReplicationController":
		kind := map[string]string{"Pod": "pod", "Job": "job", "ReplicationController": "rc"}[r.Kind]
		return fmt.Sprintf(" (see 'sampan logs -n %s %s/%s')", r.Namespace, kind, r.Name)
	}
	return ""
}

// durationOrSeconds reads kubectl's old way to say a number of seconds, too.
func durationOrSeconds(text string) (time.Duration, error) {
	if strings.Trim(text, "0123456789") == "" && text != "" {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err == nil && (d < 0 || d > math.MaxInt32*time.Second) {
		err = errors.New("it is out of range")
	}
	return d, err
}
