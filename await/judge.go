package await

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// Judge reports whether the object in v has reached the degree. It is a pure function. It returns a [*MisuseError] if the
// kind does not support the degree, and another error if the object cannot be decoded as its kind.
//
// Judge never returns Done for [Settled], which takes time.
func Judge(d Degree, v View) (Verdict, error) {
	s, err := Look(d, v)
	return s.Verdict, err
}

// Look is [Judge] with the parts that hold the object up, and its last events.
func Look(d Degree, v View) (s Status, err error) {
	err = run.Catch(func() (err error) {
		s, err = look(d, v)
		return err
	})
	return s, err
}

func look(d Degree, v View) (Status, error) {
	if d.isZero() {
		return Status{}, errors.New("await: the degree is empty")
	}
	f := newForest(d)
	var root *node
	if v.Object == nil {
		root = &node{kind: &kind{}, uid: "none"}
	} else {
		o, err := typed(v.Object)
		if err != nil {
			return Status{}, err
		}
		f.keep(f.node(f.guess(o), o), v.Object)
		root = f.place(f.guess(o), o)
	}
	for _, p := range v.Pods {
		f.place(f.guess(p), p, orphan(p, root)...)
	}
	for _, o := range v.Others {
		o, err := typed(o)
		if err != nil {
			return Status{}, err
		}
		switch o := o.(type) {
		case *discoveryv1.EndpointSlice:
			v.Slices = append(slices.Clip(v.Slices), o)
		case *corev1.Event:
			v.Warnings = append(slices.Clip(v.Warnings), o)
		default:
			f.place(f.guess(o), o, orphan(o, root)...)
		}
	}
	for _, s := range v.Slices {
		f.slice(s)
	}
	for _, e := range v.Warnings {
		f.note(e, true, 0)
	}
	f.flush()
	view := f.view(root)
	verdict, err := judge(d, view)
	if err != nil {
		return Status{}, err
	}
	s := Status{Object: root.ref(), Verdict: verdict, Absent: !root.there, Events: f.eventsOf(root)}
	if verdict.State != Done {
		s.Parts, s.More = f.partsOf(root)
	}
	return s, nil
}

// orphan returns the owner of an object that has no owner references, or that a Service may select: the root.
func orphan(o client.Object, root *node) []types.UID {
	if len(o.GetOwnerReferences()) > 0 && root.kind.name != "Service" {
		return nil
	}
	return []types.UID{root.uid}
}

// A view is the input of a verdict: a node of a forest, and the time.
type view struct {
	*forest
	node  *node
	known bool      // its parts have been listed
	since time.Time // since when the wait has seen it ready; zero if it is not
	now   time.Time

	unused   bool  // as in Request
	forPod   bool  // the claim is judged for a pod: what waits for the pod does not hold it up
	blind    bool  // the pods that a Service selects are not followed, because there are many Services
	services *feed // the Services of the namespace; nil if they are not known

	awaited int64 // the generation that is waited for; 0 outside of a wait
}

func (f *forest) view(n *node) *view { return &view{forest: f, node: n, known: true} }

// of returns the view of another node.
func (v *view) of(n *node) *view {
	other := *v
	other.node = n
	return &other
}

// A judged is a verdict that a warning may replace by a better cause.
type judged struct {
	Verdict
	vague bool // a warning is a better cause
	known bool // there is a verdict
	claim bool // a scheduler rejects the pod because of its claims: the state of these is a better cause

	mounting bool // the volumes of the pod are not all mounted: a warning about a missing object is a likely failure
}

func (j judged) final(notes []events.Note) Verdict {
	for _, n := range slices.Backward(notes) {
		if j.mounting && lacksForMount(n) {
			return failed(Likely, "%s", n.String())
		}
	}
	if n, some := events.Newest(notes); j.vague && some {
		j.Cause = n.String()
	}
	return j.Verdict
}

// judge reports whether the node's object has reached the degree.
func judge(d Degree, v *view) (Verdict, error) {
	switch {
	case d.all != nil:
		return judgeAll(d.all.of, v)
	case d.any != nil:
		return judgeAny(d.any.of, v)
	case d == Deleted:
		return judgeDeleted(v), nil
	case !v.node.there:
		return waiting("it does not exist yet"), nil
	case d == Created, d == Accepted:
		return done(), nil
	case d.settle > 0:
		return judgeSettled(d, v)
	case v.compact && v.node.isPod():
		return v.final(v.node, v.node.own), nil
	case d.path != nil, d.cel != nil, d.condition != "":
		return judgeExpression(d, v)
	}
	return judgeKind(d, v)
}

func judgeAll(of []Degree, v *view) (Verdict, error) {
	worst := done()
	for _, d := range of {
		verdict, err := judge(d, v)
		switch {
		case err != nil:
			return verdict, err
		case verdict.State == Done:
		case worst.State == Done:
			worst = verdict
		case verdict.severity() > worst.severity():
			worst = verdict.because(worst.Cause)
		default:
			worst = worst.because(verdict.Cause)
		}
	}
	return worst, nil
}

func judgeAny(of []Degree, v *view) (Verdict, error) {
	var best Verdict
	for i, d := range of {
		verdict, err := judge(d, v)
		switch {
		case err != nil || verdict.State == Done:
			return verdict, err
		case i == 0:
			best = verdict
		case verdict.severity() < best.severity():
			best = verdict.because(best.Cause)
		default:
			best = best.because(verdict.Cause)
		}
	}
	return best, nil
}

func judgeSettled(d Degree, v *view) (Verdict, error) {
	verdict, err := judge(Ready, v)
	if err != nil || verdict.State != Done {
		return verdict, err
	}
	if !v.since.IsZero() && v.now.Sub(v.since) >= d.settle {
		return verdict, nil
	}
	return waiting("ready, but not for %v yet", d.settle), nil
}

// judgeKind judges an object by the rules of its kind, or by its conditions if the kind has no rules.
func judgeKind(d Degree, v *view) (Verdict, error) {
	if r := rulesOf(v.node.object); r.judge != nil {
		return r.judge(d, v.node.object, v)
	}
	return judgeGeneric(d, v.node.object, v)
}

// judgeExpression judges a condition, path or expression. It returns a certain failure if the object has ended, because
// the expression cannot become true any more; otherwise it adds the cause why the object is not ready.
func judgeExpression(d Degree, v *view) (Verdict, error) {
	obj := v.node.object
	object := v.node.fields
	if object == nil {
		var err error
		if object, err = fields(obj); err != nil {
			return Verdict{}, err
		}
	}
	var (
		got Verdict
		err error
	)
	switch {
	case d.path != nil:
		got, err = judgePath(d.path, object)
	case d.cel != nil:
		got, err = d.cel.judge(object)
	default:
		got, err = judgeCondition(d, obj, object)
	}
	if err != nil || got.State == Done {
		return got, err
	}
	if r := rulesOf(obj); r.ended != nil {
		if end, over := r.ended(obj); over {
			return failed(Certain, "%s; %s", end, got.Cause), nil
		}
	}
	// The cause that the object is not ready often explains the expression. A MisuseError only means that there is none.
	why, err := judgeKind(Ready, v)
	_, said, _ := strings.Cut(got.Cause, ": ")
	if err == nil && (said == "" || !strings.Contains(why.Cause, said)) {
		got = got.because(why.Cause)
	}
	return got, nil
}

// typed converts an unstructured object to the Go type of its kind, if there is one.
func typed(obj client.Object) (client.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	into := builtin(u.GroupVersionKind())
	if into == nil {
		return obj, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return into, nil
}

// fields returns obj as nested maps, for paths and for kinds without a Go type.
// The result must not be changed.
func fields(obj client.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", obj.GetName(), err)
	}
	return m, nil
}

// warning returns the newest warning about the object itself, or "".
func (v *view) warning() string {
	n, some := events.Newest(v.notes[v.node.uid])
	if !some {
		return ""
	}
	return n.String()
}

// refused returns the last error of the controller when it created a pod. The error is a certain failure only if its
// event is newer than the wait: an older one may be about a quota that has been raised since.
func (v *view) refused() (verdict Verdict, some bool) {
	for _, n := range slices.Backward(v.notes[v.node.uid]) {
		if n.Normal != "" || n.Reason != "FailedCreate" {
			continue
		}
		certainty := Likely
		if n.Fresh && barred(n.Message) {
			certainty = Certain
		}
		return failed(certainty, "%s", n.String()), true
	}
	return verdict, false
}

// barred reports whether an error message means that no pod can be created until a quota or an admission rule changes, or
// until the pod template does, because the API server calls its pods invalid (422). It checks templates less strictly: one may have
// an image with a blank at its end.
func barred(message string) bool {
	return strings.Contains(message, "exceeded quota") || strings.Contains(message, "is forbidden") || strings.Contains(message, " is invalid: ")
}

// pods returns the counts of the pods of one revision.
func (v *view) pods(revision string) tally {
	if t := v.node.sums[revision]; t != nil {
		return *t
	}
	return tally{}
}

// allPods returns the counts of the pods of all revisions.
func (v *view) allPods() (sum tally) {
	for _, t := range v.node.sums {
		sum.add(*t, 1)
	}
	return sum
}

// holdup returns the verdict on the part that holds up the object most, and adds how many more there are. It ignores the
// parts for which keep returns false; a nil keep takes all.
func (v *view) holdup(keep func(*node) bool) (Verdict, bool) {
	var first *node
	all := int32(0)
	for _, n := range v.node.troubled {
		if keep != nil && !keep(n) {
			continue
		}
		if first == nil && n.given.troubled > 0 {
			first = n
		}
		if all += n.given.troubled; keep == nil && first != nil {
			all = v.allPods().troubled // cheaper than a loop over all
			break
		}
	}
	if first == nil {
		return Verdict{}, false
	}
	for len(first.troubled) > 0 && first.troubled[0].verdict.severity() == first.verdict.severity() {
		first = first.troubled[0]
	}
	verdict := first.verdict
	verdict.Cause = words(first.kind.name) + " " + first.name + ": " + verdict.Cause
	if all > 1 {
		verdict.Cause += fmt.Sprintf(" (and %d more)", all-1)
	}
	return verdict, true
}

// held adds to missing the reason: the worst part or, if no part is held up, the newest warning.
func (v *view) held(missing Verdict, keep func(*node) bool) Verdict {
	if why, some := v.holdup(keep); some {
		why.Cause = missing.Cause + "; " + why.Cause
		return why
	}
	return missing.because(v.warning())
}

// partsOf returns the parts that hold an object up, worst first, and how many are left out.
func (f *forest) partsOf(n *node) (parts []Part, more int) {
	troubled := n.troubled
	if r := rulesOf(n.object); r.parts != nil {
		troubled = r.parts(f.parts, n.object, troubled)
	}
	for _, t := range troubled[:min(len(troubled), MaxParts)] {
		p := Part{Object: t.ref(), Verdict: t.verdict}
		p.Parts, p.More = f.partsOf(t)
		parts = append(parts, p)
	}
	return parts, len(troubled) - len(parts)
}

// eventsOf returns the last events about an object and the parts that partsOf returns, oldest first.
func (f *forest) eventsOf(n *node) []*corev1.Event {
	type about struct {
		events.Note
		uid types.UID
	}
	var all []about
	var gather func(n *node)
	gather = func(n *node) {
		for _, e := range f.notes[n.uid] {
			if e.Normal != "" || !e.Harmless() {
				all = append(all, about{e, n.uid})
			}
		}
		for _, t := range n.troubled[:min(len(n.troubled), MaxParts)] {
			gather(t)
		}
	}
	gather(n)
	sorting.Stable(all, func(a, b about) int { return events.Older(a.Note, b.Note) })
	all = all[max(0, len(all)-events.MaxNotes):]
	var events []*corev1.Event
	for _, e := range all {
		events = append(events, e.Event(e.uid))
	}
	return events
}

// words returns a kind in lower-case words: "replica set".
func words(kind string) string {
	var s strings.Builder
	upper := func(i int) bool { return i < len(kind) && kind[i] >= 'A' && kind[i] <= 'Z' }
	for i, r := range kind {
		if i > 0 && upper(i) && (!upper(i-1) || i+1 < len(kind) && !upper(i+1)) {
			s.WriteByte(' ')
		}
		s.WriteRune(r)
	}
	return strings.ToLower(s.String())
}
