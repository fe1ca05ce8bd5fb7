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

// A waiting makes a command wait for the objects that it wrote.
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

// Options are the differences between commands that wait.
type Options struct {
	Done    string        // the operation in the stream of events: applied, scaled, …
	Always  bool          // wait by default
	Timeout time.Duration // default of --timeout; 0 means none
	Never   func() bool   // reports that the command does not wait after all; may be nil
	Steps   bool          // add the lines that the command prints to the stream of events
	Quiet   *bool         // set before the command runs if -q is given without a stream of events; may be nil
}

// DefaultTimeout is how long a command waits by default for the objects that it wrote. A certain failure ends the wait
// earlier.
const DefaultTimeout = 5 * time.Minute

// A waitDegree is the value of --wait: "false", "true" for the default degree of each kind, or a degree.
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

// AddFlags adds --wait and the flags that belong to it to a command. The command passes each object that it has written
// to wrote.
func AddFlags(g *session.Globals, cmd *cobra.Command, wrote *Listener, o Options) {
	w := &waiting{Globals: g, Options: o, degree: "false"}
	help := "wait until the written objects are done: complete for a Job, ready for other kinds, or --wait=DEGREE; see 'sampan wait --help'"
	if o.Always {
		w.degree, help = "true", "wait until the objects are deleted"
	}
	f := cmd.Flags()
	flag := f.VarPF(&w.degree, "wait", "", help)
	flag.NoOptDefVal = "true"
	own := f.Lookup("timeout") == nil // some commands have a --timeout, which the wait then uses
	if own {
		f.DurationVar(&w.timeout, "timeout", o.Timeout, "how long to wait for all objects; 0 means no limit")
	}
	w.Patience.AddFlags(f)
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		w.command = cmd.CommandPath()
		if !own {
			w.timeout, _ = cmd.Flags().GetDuration("timeout") // its type is a duration
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
			// A stream of events is the same with -q.
			*w.Options.Quiet = w.Patience.Quiet && (w.degree == "false" || g.Output != "json")
		}
		if w.degree == "false" || w.Never != nil && w.Never() {
			return inner(cmd, args)
		}
		g.Within(w.timeout)
		*wrote = w.note
		if g.Output == "json" {
			out := g.Out
			w.events = newEventStream(g)
			g.Out, g.Output = io.Discard, "" // the events replace the output of the command
			if o.Steps {
				g.Out = &lineWriter{handle: func(line []byte) {
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
		return fmt.Errorf("%s needs --wait", needsWait)
	}
	return w.Apply(&await.Request{})
}

// note records an object that the command wrote.
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

// finish waits for the written objects. before is the error of the command, which is part of the result.
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
		Silent: w.Always, Calm: w.Always, // like kubectl delete, which has printed "deleted" already
		exact: w.exact(),
	}
	s, err := w.Connect()
	if err != nil {
		return errors.Join(before, err)
	}
	return awaitAll(ctx, s, requests, talk, w.printed(before))
}

// printed prints what the server refused before a wait for the other objects, which may be long. The error that it returns
// is not printed again. A stream of events has it in the result as well.
func (w *waiting) printed(before error) error {
	ended, is := errors.AsType[*exit.Error](before)
	if before == nil || is && ended.Err == nil {
		return before
	}
	lines := exit.Explain(before, w.ClusterFlag)
	if w.events != nil {
		w.events.Send(progress.Event{Type: progress.TypeNote, Error: strings.Join(lines, "\n")})
		return before
	}
	for _, line := range lines {
		_, _ = fmt.Fprintln(w.Err, line)
	}
	return &exit.PrintedError{Err: before}
}

// requests returns one request for each degree.
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
			// A claim that no pod uses would stay so; with a pod of the same command, that pod waits for it.
			r := await.Request{For: degree, Timeout: w.timeout, Targets: []await.Target{target}, Unused: w.degree == "true"}
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

// A Listener is called with each object that a command has written. A nil Listener is not called.
type Listener func(resource.Written)

// Notify calls the listener after a write, with the object that the server returned.
func (to Listener) Notify(m resource.Mapping, obj metav1.Object) {
	if to != nil {
		to(m.WrittenAs(obj))
	}
}

// exact reports whether objects are needed exactly as the server sends them.
func (w *waiting) exact() bool {
	d, err := await.ParseDegree(string(w.degree))
	return err == nil && d.LooksAtFields() // "true" is not a degree
}
