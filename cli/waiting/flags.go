package waiting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

// A waiting makes a verb that writes objects wait for what it wrote: exactly these
// objects, as it wrote them.
type waiting struct {
	*session.Globals
	Options
	command string
	degree  waitDegree
	timeout time.Duration
	Patience

	events  *Events
	written []resource.Written
}

// Options are how verbs differ in their waiting.
type Options struct {
	Done    string               // what the verb has done to an object, for the stream of events
	Always  bool                 // it waits unless told not to
	Timeout time.Duration        // if none is given; 0 means none
	Never   func() (reason bool) // it does not wait after all; nil means it does
	Steps   bool                 // what the verb prints on the way is told in the stream of events, too
	Quiet   *bool                // set before the verb runs if -q asks for nothing but the result; may be nil
}

// DefaultTimeout is how long a verb waits for what it wrote, unless told otherwise.
// What is certain to fail ends the wait sooner.
const DefaultTimeout = 5 * time.Minute

// A waitDegree is what --wait says: "false", "true" for what suits each kind, or a
// degree.
type waitDegree string

func (d *waitDegree) String() string { return string(*d) }
func (d *waitDegree) Type() string   { return "degree" }

// Set implements pflag.Value.
func (d *waitDegree) Set(text string) error {
	switch text {
	case "true", "false":
	default:
		if _, err := await.ParseDegree(text); err != nil {
			return err
		}
	}
	*d = waitDegree(text)
	return nil
}

// AddFlags gives a verb --wait and its companions. The verb tells wrote what it has
// written.
func AddFlags(g *session.Globals, cmd *cobra.Command, wrote *Listener, o Options) {
	w := &waiting{Globals: g, Options: o, degree: "false"}
	help := "wait until what was written is done: what suits its kind (complete for a Job, ready for others), or --wait=DEGREE; see 'sampan wait --help'"
	if o.Always {
		w.degree, help = "true", "wait until the objects are gone"
	}
	f := cmd.Flags()
	flag := f.VarPF(&w.degree, "wait", "", help)
	flag.NoOptDefVal = "true"
	own := f.Lookup("timeout") == nil // a verb that has one of its own waits as long as that says
	if own {
		f.DurationVar(&w.timeout, "timeout", o.Timeout, "how long to wait for all of it; 0 waits for ever")
	}
	w.Patience.AddFlags(f)
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		w.command = cmd.CommandPath()
		if !own {
			w.timeout, _ = cmd.Flags().GetDuration("timeout") // it is one
		}
		needless := ""
		if own && cmd.Flags().Changed("timeout") {
			needless = "--timeout"
		} else if cmd.Flags().Changed("logs") {
			needless = "--logs"
		}
		if err := w.check(needless); err != nil {
			return exit.Usage(w.command, err)
		}
		if w.Options.Quiet != nil {
			// A stream of events is for programs, and is the same with -q.
			*w.Options.Quiet = w.Patience.Quiet && (w.degree == "false" || g.Output != "json")
		}
		if w.degree == "false" || w.Never != nil && w.Never() {
			return inner(cmd, args)
		}
		g.Within(w.timeout)
		*wrote = w.note
		if g.Output == "json" {
			out := g.Out
			w.events = newEventStream(out)
			g.Out, g.Output = io.Discard, "" // the events say what was written
			if o.Steps {
				g.Out = &lineEvents{tell: func(line []byte) {
					w.events.Send(progress.Event{Type: progress.TypeStep, Line: strings.ToValidUTF8(string(line), "\uFFFD")})
				}}
			}
			defer func() { g.Out, g.Output = out, "json" }()
		}
		return w.finish(cmd.Context(), inner(cmd, args))
	}
}

func (w *waiting) check(needsWait string) error {
	if w.timeout < 0 {
		return fmt.Errorf("--timeout=%v: want 0 or more", w.timeout)
	}
	if needsWait != "" && w.degree == "false" && !w.Always {
		return fmt.Errorf("%s is about waiting: add --wait", needsWait)
	}
	return w.Apply(&await.Request{})
}

// note is told what was written.
func (w *waiting) note(o resource.Written) {
	w.written = append(w.written, o)
	if w.events == nil {
		return
	}
	done := w.Done
	if o.Deleted {
		done = "deleted"
	}
	w.events.Send(progress.Event{Type: progress.TypeWritten, Operation: done, Object: progress.ObjectOf(await.Ref{
		Resource: o.Mapping.GroupVersionResource, Kind: o.Mapping.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
	})})
}

// finish waits for what was written. What the verb could not write is part of its
// result.
func (w *waiting) finish(ctx context.Context, before error) error {
	requests := w.requests()
	if ctx.Err() != nil || len(requests) == 0 {
		if w.events != nil {
			w.events.result(nil, before)
		}
		return before
	}
	talk := Talk{
		Quiet: w.Patience.Quiet, Logs: w.Logs, Events: w.events, flag: "--wait",
		Silent: w.Always, Calm: w.Always, // as kubectl's delete, which has said that it is deleted
		exact: w.exact(),
	}
	s, err := w.Connect()
	if err != nil {
		return errors.Join(before, err)
	}
	return awaitAll(ctx, s, requests, talk, before)
}

// requests returns what is to be waited for, a request for each degree.
func (w *waiting) requests() []await.Request {
	var requests []await.Request
	for _, o := range w.written {
		degree := w.degreeOf(o)
		target := await.Target{
			Resource: o.Mapping.GroupVersionResource, Kind: o.Mapping.Kind, Namespace: o.Namespace, Name: o.Name,
			UID: o.UID, Generation: o.Generation, ResourceVersion: o.ResourceVersion,
		}
		if degree == await.Deleted {
			target.Generation, target.ResourceVersion = 0, ""
		}
		known := false
		for i := range requests {
			if requests[i].For == degree {
				requests[i].Targets = append(requests[i].Targets, target)
				known = true
			}
		}
		if !known {
			r := await.Request{For: degree, Timeout: w.timeout, Targets: []await.Target{target}}
			_ = w.Apply(&r) // it was checked
			requests = append(requests, r)
		}
	}
	return requests
}

func (w *waiting) degreeOf(o resource.Written) await.Degree {
	switch {
	case o.Deleted:
		return await.Deleted
	case w.degree != "true":
		d, _ := await.ParseDegree(string(w.degree)) // it was checked
		return d
	case o.Mapping.GroupVersionResource == client.Jobs.GroupVersionResource:
		return await.Complete
	}
	return await.Ready
}

// Listener tells whoever wants to know what a verb has written.
type Listener func(resource.Written)

// Tell is called after each write, with the object as it is after it.
func (to Listener) Tell(m resource.Mapping, obj metav1.Object) {
	if to != nil {
		to(m.WrittenAs(obj))
	}
}

// exact reports whether objects are needed exactly as the server writes them.
func (w *waiting) exact() bool {
	d, err := await.ParseDegree(string(w.degree))
	return err == nil && d.LooksAtFields() // "true" is none
}
