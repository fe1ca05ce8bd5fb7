package await

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/run"
)

// A member is one object that is waited for.
type member struct {
	target *Target
	feed   *feed
	node   *node // nil when it does not exist

	namespace, name string
	uid             types.UID // empty until it has been seen
	awaited         int64     // the generation that is waited for: the target's, or the first that was seen
	order           int       // of appearance
	index           int       // in watcher.members; negative once it is dropped

	verdict  Verdict
	parts    []Part // the worst parts that hold it up
	more     int    // how many further parts hold it up
	reported bool   // the verdict was passed to progress
	state    memberState
	dirty    bool

	failing time.Time // since when it has been failing; zero if it is not
	since   time.Time // since when it has been ready; only for Settled
	wake    time.Time // when to judge it again without an event; zero for never

	looked   bool    // its parts are followed
	lookedAt int64   // the generation for which they are
	looks    []*feed // the feeds of its parts
	blind    bool    // the pods that it selects are not followed
	services *feed   // the Services of its namespace, for Serving
}

// A memberState says how a member counts for the decision.
type memberState int

const (
	isOpen memberState = iota
	isDone
	isBad  // it has failed, for longer than the grace period if the failure is likely
	isLost // it does not exist, and the request does not wait for missing objects
	memberStates
)

func (m *member) key() types.NamespacedName {
	return types.NamespacedName{Namespace: m.namespace, Name: m.name}
}

func (m *member) picked() bool { return m.target.Name == "" }

// unknown reports whether it has not been listed yet.
func (m *member) unknown() bool { return m.node == nil && !m.feed.synced }

func (m *member) ref() Ref {
	return Ref{m.target.Resource, m.target.Kind, m.namespace, m.name, m.uid}
}

func (m *member) status() Status {
	return Status{Object: m.ref(), Verdict: m.verdict, Absent: m.node == nil, Parts: m.parts, More: m.more}
}

// A watcher holds the members and their parts. It is used by one goroutine.
type watcher struct {
	req      Request
	progress func(Progress)
	start    func(*feed)         // starts a goroutine that follows the source of a feed
	ask      func(*feed, Target) // starts a goroutine that finds the resource of a target by discovery

	forest    *forest
	feeds     map[source]*feed
	every     []*feed
	primaries []*feed          // the feeds with targets, in the order of the targets
	choosers  []*feed          // the primaries with a selector
	spaces    map[string]*feed // namespaces, by name
	byName    map[name]*feed   // objects that pods name
	kinds     *feed            // CustomResourceDefinitions; nil while all kinds are known
	pending   int              // feeds that only explain and are not listed yet
	unsynced  int              // feeds of members that are not listed yet

	members []*member
	touched []*member // to be judged again
	orders  int
	named   [memberStates]int // how many members of named targets are in each state
	picked  [memberStates]int // how many members of selectors are
	wakes   wakes
	bad     map[*member]struct{} // the members in the state isBad

	away      bool      // progress was called because the server cannot be reached
	explainBy time.Time // when a failure is returned even if its causes are not known yet; zero without a failure
}

func newWatcher(req Request, progress func(Progress)) *watcher {
	w := &watcher{
		req: req, progress: progress, forest: newForest(req.For),
		feeds: map[source]*feed{}, spaces: map[string]*feed{}, byName: map[name]*feed{}, bad: map[*member]struct{}{},
	}
	w.forest.touched = func(n *node) {
		for _, m := range n.members {
			w.touch(m)
		}
	}
	return w
}

// begin starts the sources of the targets: one for each resource, namespace and selector. A name that is the only target
// of its resource and namespace is a field selector.
func (w *watcher) begin() {
	named := map[source]int{}
	for i := range w.req.Targets {
		if t := &w.req.Targets[i]; t.Name != "" {
			t.Labels, t.Fields = "", ""
			named[sourceOf(t)]++
		}
	}
	for i := range w.req.Targets {
		t := &w.req.Targets[i]
		s := sourceOf(t)
		if t.Name != "" && named[s] == 1 {
			s.fields = "metadata.name=" + t.Name
		}
		f := w.feeds[s]
		if f == nil || s.Resource == "" {
			f = &feed{source: s, members: map[types.NamespacedName]*member{}}
			if w.req.Missing {
				f.again = run.NewBell()
			}
			if s.Resource != "" {
				w.feeds[s] = f
			}
			w.every = append(w.every, f)
			w.primaries = append(w.primaries, f)
			w.unsynced++
		}
		if t.Name == "" && f.selecting() == nil {
			w.choosers = append(w.choosers, f)
		}
		if f.targets = append(f.targets, t); t.Name == "" {
			continue
		}
		if m := (&member{target: t, feed: f, namespace: t.Namespace, name: t.Name, uid: t.UID}); f.members[m.key()] == nil {
			w.add(m)
		}
	}
	for _, f := range w.primaries {
		switch {
		case f.Resource != "":
			w.start(f)
		case w.req.Resolve != nil:
			w.ask(f, *f.targets[0])
			f.unserved = true
			w.watchDefinitions()
		default:
			f.unserved = true
			w.listed(f)
			w.watchDefinitions()
		}
	}
}

func (w *watcher) add(m *member) {
	m.order, m.index = w.orders, len(w.members)
	w.orders++
	w.members = append(w.members, m)
	m.feed.members[m.key()] = m
	w.count(m, 1)
	w.touch(m)
}

// drop removes a member.
func (w *watcher) drop(m *member) {
	last := w.members[len(w.members)-1]
	w.members[m.index], last.index = last, m.index
	w.members = w.members[:len(w.members)-1]
	m.index = -1
	w.count(m, -1)
	delete(w.bad, m)
	if m.reported {
		w.progress(Dropped{Object: m.ref(), Absent: m.node == nil})
	}
}

func (w *watcher) count(m *member, by int) {
	if m.picked() {
		w.picked[m.state] += by
	} else {
		w.named[m.state] += by
	}
}

func (w *watcher) touch(m *member) {
	if !m.dirty {
		m.dirty = true
		w.touched = append(w.touched, m)
	}
}

// selecting returns the target of f that is a selector, or nil.
func (f *feed) selecting() *Target {
	for _, t := range f.targets {
		if t.Name == "" {
			return t
		}
	}
	return nil
}

// enroll connects the node of an object in a feed with its member. It makes the member if a selector picks the object.
func (w *watcher) enroll(f *feed, n *node) {
	key := types.NamespacedName{Namespace: n.namespace, Name: n.name}
	m := f.members[key]
	if m == nil {
		t := f.selecting()
		if t == nil || f.closed {
			return
		}
		m = &member{target: t, feed: f, namespace: n.namespace, name: n.name}
		w.add(m)
	}
	f.seen = true
	if m.uid != "" && m.uid != n.uid {
		w.absent(f, key, m) // another object of the same name (A1)
		if f.members[key] == nil {
			w.enroll(f, n) // the selector picks this one, too
		}
		return
	}
	if m.node == nil {
		m.uid, m.node, m.awaited = n.uid, n, cmp.Or(m.target.Generation, n.count)
		n.members = append(n.members, m)
	}
	w.touch(m)
}

// absent handles that a member does not exist. A member that a selector picked no longer counts (A3), unless the wait is
// for its deletion.
func (w *watcher) absent(f *feed, key types.NamespacedName, m *member) {
	if n := m.node; n != nil {
		n.members = slices.DeleteFunc(n.members, func(o *member) bool { return o == m })
		m.node, m.looked, m.since = nil, false, time.Time{}
		if w.req.Missing && m.target.UID == "" && !w.req.For.has(Deleted) {
			m.uid = "" // the next object of this name counts, whatever its UID
		}
		w.forest.forget(n)
	}
	if m.picked() {
		delete(f.members, key)
		if !w.req.For.has(Deleted) {
			w.drop(m)
			return
		}
	}
	w.touch(m)
}

// looked reports whether every list is complete, and no failure is held back.
func (w *watcher) looked() bool { return w.unsynced == 0 && w.pending == 0 && w.explainBy.IsZero() }

// take handles a report. If the report may decide the wait, take judges at once, because the next report may bring
// another state (A7).
func (w *watcher) take(r report) (result Result, decided bool, err error) {
	if err := w.receive(r); err != nil {
		return TimedOut, false, err
	}
	decides := w.decides(r.from)
	isMember := func(o client.Object) bool {
		n := r.from.nodes[idOf(o)]
		return n != nil && len(n.members) > 0
	}
	switch news := r.Step.(type) {
	case deleted:
	case follow.Page:
		decides = decides && news.Whole
	case *follow.Changed:
		decides = decides || isMember(news.Object)
	case follow.Deleted:
		decides = decides || isMember(news.Object)
	default:
		decides = false
	}
	if !decides {
		return TimedOut, false, nil
	}
	return w.decide(time.Now())
}

// decide judges the changed members and reports whether the wait is decided. A failure is reported when the feeds that
// explain it are listed and the pods of a failed Job are seen to have ended, or after explainLimit.
func (w *watcher) decide(now time.Time) (Result, bool, error) {
	result, decided, err := w.settled(now)
	if err == nil && decided && result == SomeFailed && (w.pending > 0 || w.podsBehind()) {
		if w.explainBy.IsZero() {
			w.explainBy = now.Add(explainLimit)
		}
		return result, !now.Before(w.explainBy), nil
	}
	w.explainBy = time.Time{}
	return result, decided, err
}

// podsBehind reports whether a Job has failed whose pods are not seen to have ended: the watch of pods may be behind that of
// the Job, and the pods have the cause.
func (w *watcher) podsBehind() bool {
	for m := range w.bad {
		if m.node == nil {
			continue
		}
		if _, is := m.node.object.(*batchv1.Job); is && w.forest.view(m.node).allPods().live > 0 {
			return true
		}
	}
	return false
}

// explainLimit is how long a failure is held back until its causes are known.
const explainLimit = 2 * time.Second

// next returns the time at which decide must be called even without a report.
func (w *watcher) next() (at time.Time, some bool) {
	at, some = w.wakes.next()
	if !w.explainBy.IsZero() && (!some || w.explainBy.Before(at)) {
		return w.explainBy, true
	}
	return at, some
}

func (w *watcher) settled(now time.Time) (Result, bool, error) {
	for _, m := range w.wakes.due(now) {
		w.touch(m)
	}
	w.forest.flush()
	for len(w.touched) > 0 {
		touched := w.touched
		w.touched = nil
		for _, m := range touched {
			m.dirty = false
			if m.index < 0 {
				continue
			}
			if err := w.judge(m, now); err != nil {
				return 0, false, err
			}
		}
	}
	if w.unsynced > 0 {
		return 0, false, nil
	}
	nothing, gone, open := w.empty()
	open += w.named[isOpen] + w.picked[isOpen]
	bad, lost := w.named[isBad]+w.picked[isBad], w.named[isLost]+w.picked[isLost]+gone
	all := 0
	for _, n := range w.picked {
		all += n
	}
	switch {
	case w.req.Any && w.named[isDone]+w.picked[isDone] > 0:
		return AllDone, true, nil
	case w.req.Any && open > 0:
		return 0, false, nil
	case w.req.Any, w.req.Count == 0:
	case w.named[isBad] > 0 || w.picked[isBad] > 0 && all-w.picked[isBad] < w.req.Count:
		return SomeFailed, true, nil
	case w.named[isLost] > 0:
		return Vanished, true, nil
	case all == 0 && gone+nothing > 0 && open == 0:
		return NothingMatched, true, nil
	default:
		return AllDone, w.named[isOpen] == 0 && w.picked[isDone] >= w.req.Count, nil
	}
	switch {
	case bad > 0:
		return SomeFailed, true, nil
	case w.named[isLost] > 0:
		return Vanished, true, nil
	case nothing+lost > 0:
		return NothingMatched, true, nil
	}
	return AllDone, open == 0, nil
}

// empty counts the selectors that match nothing: nothing never matched, gone lost their members with the namespace, and
// open may get new members.
func (w *watcher) empty() (nothing, gone, open int) {
	deleted := w.req.For.has(Deleted)
	for _, f := range w.choosers {
		t := f.selecting()
		if deleted {
			continue
		}
		if len(f.nodes) > 0 {
			w.reportEmpty(f, t, false)
			continue
		}
		switch {
		case w.req.Missing:
			open++
			w.reportEmpty(f, t, true)
		case !f.seen && !w.req.For.has(Created):
			nothing++
		case f.seen && w.spaceTrouble(f.namespace) != "":
			gone++
		default:
			open++ // the members are being replaced, or are not created yet
			w.reportEmpty(f, t, true)
		}
	}
	return nothing, gone, open
}

// reportEmpty calls progress when a selector begins to match nothing, and when that ends. A wait without any output would
// seem to hang.
func (w *watcher) reportEmpty(f *feed, t *Target, lacking bool) {
	if lacking == f.reportedEmpty || w.pending > 0 {
		return
	}
	f.reportedEmpty = lacking
	object := Ref{Resource: t.Resource, Kind: t.Kind, Namespace: t.Namespace}
	if !lacking {
		w.progress(Dropped{Object: object, Absent: true})
		return
	}
	verdict := f.absence("nothing matches yet").because(w.spaceTrouble(f.namespace))
	w.progress(Status{Object: object, Verdict: verdict, Absent: true})
}

// absence returns the verdict on a missing object.
func (f *feed) absence(what string) Verdict {
	verdict := waiting("%s", what)
	if f.unserved {
		verdict = verdict.because("the server does not serve " + f.what() + " yet")
	}
	return verdict
}

func (w *watcher) judge(m *member, now time.Time) error {
	var verdict Verdict
	err := run.Catch(func() (err error) {
		verdict, err = w.verdict(m, now)
		return err
	})
	if err != nil {
		if _, ok := errors.AsType[*MisuseError](err); ok {
			return err
		}
		return fmt.Errorf("%s: %w", m.ref(), err)
	}
	w.setState(m, verdict, now)
	var parts []Part
	more := 0
	if verdict.State != Done && m.node != nil {
		w.lookInto(m)
		parts, more = w.forest.partsOf(m.node)
	}
	if !m.reported && verdict.State == Waiting && (w.pending > 0 || m.unknown()) {
		m.verdict = verdict // the cause will be known soon
		return nil
	}
	if !m.reported || verdict != m.verdict || more != m.more || !reflect.DeepEqual(parts, m.parts) {
		m.verdict, m.parts, m.more, m.reported = verdict, parts, more, true
		w.progress(m.status())
	}
	return nil
}

func (w *watcher) verdict(m *member, now time.Time) (Verdict, error) {
	n := m.node
	if n == nil {
		if w.req.For.has(Deleted) {
			return judge(w.req.For, w.forest.view(&node{}))
		}
		if m.unknown() {
			return Verdict{}, nil
		}
		return m.feed.absence("it does not exist yet").because(w.spaceTrouble(m.namespace)), nil
	}
	if n.count < m.target.Generation || newer(m.target.ResourceVersion, n.version) {
		m.since = time.Time{}
		return waiting("the server has not shown the latest change yet"), nil
	}
	v := &view{forest: w.forest, node: n, known: m.knows(), now: now, awaited: m.awaited, blind: m.blind, services: m.services, unused: w.req.Unused}
	if settles := w.req.For.settles(); len(settles) > 0 {
		ready, err := judge(Ready, v)
		switch {
		case err != nil:
			return ready, err
		case ready.State != Done:
			m.since = time.Time{}
		case m.since.IsZero() || n.restarted:
			m.since = now
		}
		n.restarted = false
		v.since = m.since
	}
	return judge(w.req.For, v)
}

// what returns the name of the resource, or the name that the target has for its kind if the resource is not known.
func (f *feed) what() string {
	if f.Resource == "" {
		return f.targets[0].Kind
	}
	return f.GroupResource().String()
}

// setState sets the state of a member from its verdict, and the time at which the state may change without an event.
func (w *watcher) setState(m *member, verdict Verdict, now time.Time) {
	var next time.Time
	at := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	switch {
	case verdict.State != Failed:
		m.failing = time.Time{}
	case m.failing.IsZero():
		m.failing = now
	}
	w.count(m, -1)
	switch {
	case verdict.State == Done:
		m.state = isDone
	case m.node == nil && !w.req.Missing && !w.req.For.has(Created) && m.feed.synced:
		m.state = isLost
	case verdict.State == Failed && (verdict.Certainty == Certain || w.req.Fail == FailAtOnce ||
		w.req.Fail == FailAfterGrace && now.Sub(m.failing) >= w.req.Grace):
		m.state = isBad
	default:
		m.state = isOpen
		if verdict.State == Failed && w.req.Fail == FailAfterGrace {
			at(m.failing.Add(w.req.Grace))
		}
		if !m.since.IsZero() {
			for _, d := range w.req.For.settles() {
				at(m.since.Add(d))
			}
		}
	}
	if m.state == isBad {
		w.bad[m] = struct{}{}
	} else {
		delete(w.bad, m)
	}
	w.count(m, 1)
	if !next.Equal(m.wake) && !next.IsZero() {
		heap.Push(&w.wakes, wake{next, m})
	}
	m.wake = next
}

func (w *watcher) outcome(r Result) Outcome {
	members := slices.SortedFunc(slices.Values(w.members), func(a, b *member) int {
		if a.namespace != b.namespace {
			if a.namespace < b.namespace {
				return -1
			}
			return 1
		}
		return a.order - b.order
	})
	out := Outcome{Result: r, Objects: make([]Status, len(members))}
	for i, m := range members {
		out.Objects[i] = m.status()
		if m.node != nil && m.verdict.State != Done {
			out.Objects[i].Events = w.forest.eventsOf(m.node)
		}
	}
	return out
}

// wakes is a heap of the times at which members have to be judged without an event. The entry of a member that is judged
// earlier stays, and is skipped.
type wakes []wake

type wake struct {
	at     time.Time
	member *member
}

func (w wakes) Len() int           { return len(w) }
func (w wakes) Less(i, j int) bool { return w[i].at.Before(w[j].at) }
func (w wakes) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }

// Push implements [heap.Interface].
func (w *wakes) Push(x any) { *w = append(*w, x.(wake)) } // only wakes are pushed

// Pop implements [heap.Interface].
func (w *wakes) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// next returns the time of the first valid entry.
func (w *wakes) next() (at time.Time, some bool) {
	for len(*w) > 0 {
		if first := (*w)[0]; first.member.index >= 0 && first.member.wake.Equal(first.at) {
			return first.at, true
		}
		heap.Pop(w)
	}
	return at, false
}

// due removes and returns the members whose time has come.
func (w *wakes) due(now time.Time) (members []*member) {
	for {
		at, some := w.next()
		if !some || at.After(now) {
			return members
		}
		m := (*w)[0].member
		heap.Pop(w)
		m.wake = time.Time{}
		members = append(members, m)
	}
}
