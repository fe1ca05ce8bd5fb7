package progress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/internal/plural"
	"github.com/sampan-io/sampan/internal/terminal"
)

// Name returns the name of an object as kubectl prints it, or the resource for a Ref without a name.
func Name(r await.Ref) string {
	if r.Name != "" {
		return r.String()
	}
	name := cmp.Or(r.Resource.Resource, strings.ToLower(r.Kind))
	if r.Resource.Group != "" {
		name += "." + r.Resource.Group
	}
	return name
}

// Report returns lines about an object that was not done when a wait ended: the cause, the worst parts that hold it up,
// its last events, the command that shows more. The first line is complete without the others, which are indented.
func Report(p await.Status, result await.Result, words Words, hint Hint, now time.Time) []string {
	cause := cmp.Or(terminal.Line(p.Verdict.Cause), noStatus)
	first := fmt.Sprintf("timed out waiting for %s to %s: %s", p.Object, words.Infinitive, cause)
	if result == await.SomeFailed {
		first = fmt.Sprintf("%s will not %s: %s", p.Object, words.Infinitive, cause)
		if why, ended := strings.CutPrefix(cause, "the "+strings.ToLower(p.Object.Kind)+" failed: "); ended && words.Infinitive == await.Finished.Infinitive() {
			first = fmt.Sprintf("%s failed: %s", p.Object, why) // a failed Job has finished, so "will not finish" would be wrong
		}
	}
	lines := []string{first}
	const most = 3
	for _, part := range p.Parts[:min(most, len(p.Parts))] {
		if text := terminal.Line(part.Verdict.Cause); len(p.Parts) > 1 || !strings.Contains(cause, text) {
			lines = append(lines, fmt.Sprintf("  %s: %s", part.Object, cmp.Or(text, noStatus)))
		}
	}
	if left := len(p.Parts) + p.More - most; left > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", left))
	}
	for _, e := range p.Events {
		lines = append(lines, "  "+eventLine(e, p.Object, now))
	}
	if more := More(p, hint); more != "" {
		lines = append(lines, "  see: "+more)
	}
	return lines
}

func eventLine(e *corev1.Event, about await.Ref, now time.Time) string {
	text := e.Reason + ": " + terminal.Line(e.Message)
	if e.InvolvedObject.Name != about.Name || e.InvolvedObject.Kind != about.Kind {
		text = strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name + ": " + text
	}
	if n := times(e); n > 1 {
		text += " (" + plural.Count(n, "time") + ")"
	}
	if at := events.LastSeen(e); !at.IsZero() {
		text = Elapsed(now.Sub(at)) + " ago: " + text
	}
	return "event, " + text
}

func times(e *corev1.Event) int32 {
	if e.Series != nil {
		return max(e.Series.Count, e.Count)
	}
	return e.Count
}

// A Hint returns the beginning of a command to suggest: the program, a verb, and the flags that choose the cluster and
// the namespace. A nil Hint adds only the flag for the namespace.
type Hint func(verb, namespace string) string

func (h Hint) command(verb, namespace string) string {
	if h != nil {
		return h(verb, namespace)
	}
	if namespace != "" {
		verb += " -n " + namespace
	}
	return "sampan " + verb
}

// More returns the command that shows more about the worst part of an object; empty if the object does not exist.
func More(p await.Status, hint Hint) string {
	if p.Absent {
		return ""
	}
	worst, verdict := worstOf(p)
	if verdict.Logged {
		return fmt.Sprintf("%s pod/%s --all-containers", hint.command("logs", worst.Namespace), worst.Name)
	}
	unschedulable := func(e *corev1.Event) bool {
		return e.Reason == "FailedScheduling" && e.InvolvedObject.Name == worst.Name
	}
	if worst.Kind == "Pod" && slices.ContainsFunc(p.Events, unschedulable) {
		return fmt.Sprintf("%s pod/%s", hint.command("scheduler explain", worst.Namespace), worst.Name)
	}
	if len(p.Events) > 0 {
		return fmt.Sprintf("%s --field-selector involvedObject.name=%s", hint.command("get events", worst.Namespace), worst.Name)
	}
	kind, _, _ := strings.Cut(worst.String(), "/")
	return fmt.Sprintf("%s %s/%s -o yaml", hint.command("get", worst.Namespace), kind, worst.Name)
}

// worstOf returns the object at the end of the worst branch, and the verdict on it.
func worstOf(p await.Status) (await.Ref, await.Verdict) {
	worst, verdict, parts := p.Object, p.Verdict, p.Parts
	for len(parts) > 0 {
		worst, verdict, parts = parts[0].Object, parts[0].Verdict, parts[0].Parts
	}
	return worst, verdict
}
