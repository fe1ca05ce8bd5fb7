package await

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// Until waits until every target has reached the degree, one has failed for
// good, one is gone, or time is up, and says which. It always looks before it
// gives up, however short the timeout.
//
// While it waits it calls progress, if that is not nil, on the calling goroutine
// whenever the verdict on an object changes, the first one included.
//
// The error is for waits that could not be had: ctx ended, the server cannot be
// reached at the start or at the deadline, it refuses to show the objects (at
// any time), or the degree means nothing for the kind ([*MisuseError]). The
// Outcome then says what was known last.
func Until(ctx context.Context, c client.Interface, req Request, progress func(Progress)) (Outcome, error) {
	req, err := req.check()
	if err != nil {
		return Outcome{}, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	w := newWatcher(req, progress)
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	// The sources block when the loop below is busy; nothing is dropped.
	reports := make(chan report, 64)
	w.start = func(s source) {
		g.Go(func(ctx context.Context) {
			follow(ctx, c, s, func(r report) bool {
				select {
				case reports <- r:
					return true
				case <-ctx.Done():
					return false
				}
			})
		})
	}
	w.begin()

	// After the deadline the first look, if it is not over, has a limit of its own.
	deadline := time.NewTimer(cmp.Or(req.Timeout, lookLimit))
	defer deadline.Stop()
	if req.Timeout == 0 && !req.Once {
		deadline.Stop()
	}
	grace := time.NewTimer(time.Hour)
	defer grace.Stop()
	late, overdue := req.Once, false
	for {
		if wake, some := w.graceEnds(); some {
			grace.Reset(time.Until(wake))
		} else {
			grace.Stop()
		}
		select {
		case r := <-reports:
			if err := w.hear(r); err != nil {
				return w.outcome(TimedOut), err
			}
		case <-grace.C:
		case <-deadline.C:
			overdue = late
			late = true
			deadline.Reset(lookLimit)
		case <-ctx.Done():
			return w.outcome(TimedOut), context.Cause(ctx)
		}
		for more := true; more; { // judge once for all that has come
			select {
			case r := <-reports:
				if err := w.hear(r); err != nil {
					return w.outcome(TimedOut), err
				}
			default:
				more = false
			}
		}
		result, decided, err := w.decide(time.Now())
		switch {
		case err != nil:
			return w.outcome(TimedOut), err
		case decided:
			return w.outcome(result), nil
		case late && w.lost != nil:
			return w.outcome(TimedOut), w.lost // A4
		case late && w.looked():
			return w.outcome(TimedOut), nil
		case overdue:
			return w.outcome(TimedOut), fmt.Errorf("the server has not answered within %v", (req.Timeout + lookLimit).Round(time.Second))
		}
	}
}

// lookLimit is how long the first look may go on after a shorter timeout.
const lookLimit = 10 * time.Second

// A member is one object that is waited for.
type member struct {
	ref     Ref
	target  *Target
	object  client.Object // nil when it does not exist
	verdict Verdict
	said    bool      // the verdict was told
	failing time.Time // since when it has been failing, zero when it is not
}

// A watcher holds what is known about the members and what belongs to them.
type watcher struct {
	req      Request
	progress func(Progress)
	start    func(source)
	began    time.Time

	primary map[source]*primary
	order   []source
	members []*member // in order of appearance
	byUID   map[types.UID]*member
	dirty   map[*member]bool
	belongings

	lost error // why the server can't be reached; nil when it can
}

// A primary is a source of members.
type primary struct {
	targets []*Target
	synced  bool
	members map[types.NamespacedName]*member
	seen    bool // it has had a member
	closed  bool // what appears now is none of those whose end is waited for
}

func newWatcher(req Request, progress func(Progress)) *watcher {
	return &watcher{
		req: req, progress: progress, began: time.Now(),
		primary: map[source]*primary{}, byUID: map[types.UID]*member{}, dirty: map[*member]bool{},
		belongings: newBelongings(),
	}
}

// begin starts the sources of the targets: one for each (resource, namespace,
// selector), a single name being a selector, too.
func (w *watcher) begin() {
	named := map[source]int{}
	key := func(t *Target) source {
		return source{GroupVersionResource: t.Resource, namespace: t.Namespace, labels: t.Labels, fields: t.Fields}
	}
	for i := range w.req.Targets {
		if t := &w.req.Targets[i]; t.Name != "" {
			t.Labels, t.Fields = "", ""
			named[key(t)]++
		}
	}
	for i := range w.req.Targets {
		t := &w.req.Targets[i]
		s := key(t)
		if t.Name != "" && named[s] == 1 {
			s.fields = "metadata.name=" + t.Name
		}
		p := w.primary[s]
		if p == nil {
			p = &primary{members: map[types.NamespacedName]*member{}}
			w.primary[s] = p
			w.order = append(w.order, s)
		}
		p.targets = append(p.targets, t)
		if t.Name != "" {
			m := &member{target: t, ref: Ref{t.Resource, t.Kind, t.Namespace, t.Name, t.UID}}
			p.members[types.NamespacedName{Namespace: t.Namespace, Name: t.Name}] = m
			w.members = append(w.members, m)
		}
	}
	for _, s := range w.order {
		w.start(s)
	}
}

// hear takes in one report.
func (w *watcher) hear(r report) error {
	p := w.primary[r.from]
	switch {
	case r.err != nil && p == nil:
		// What belongs to an object only explains; a wait goes on without it.
		if r.final {
			w.heard(r.from)
		} else {
			w.lose(r.err)
		}
		return nil
	case r.err != nil && (r.final || !p.synced):
		return r.err
	case r.err != nil:
		w.lose(r.err)
		return nil
	}
	w.lost = nil
	switch {
	case p == nil:
		w.heard(r.from)
		return w.belong(r)
	case r.listed:
		p.synced = true
		present := map[types.NamespacedName]bool{}
		for _, o := range r.list {
			present[keyOf(o)] = true
			w.put(p, o)
		}
		for key, m := range p.members {
			if !present[key] {
				w.remove(p, key, m)
			}
		}
		p.closed = w.req.For == Deleted
	case r.deleted:
		if m := p.members[keyOf(r.object)]; m != nil && (m.object == nil || m.object.GetUID() == r.object.GetUID()) {
			w.remove(p, keyOf(r.object), m)
		}
	default:
		w.put(p, r.object)
	}
	return nil
}

func (w *watcher) lose(err error) {
	if w.lost == nil {
		w.progress(Progress{Lost: err})
	}
	w.lost = err
}

func keyOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// put takes in an object that exists.
func (w *watcher) put(p *primary, o client.Object) {
	key := keyOf(o)
	m := p.members[key]
	if m == nil {
		t := p.selecting()
		if t == nil || p.closed {
			return
		}
		m = &member{target: t, ref: Ref{t.Resource, t.Kind, o.GetNamespace(), o.GetName(), o.GetUID()}}
		p.members[key] = m
		w.members = append(w.members, m)
	}
	p.seen = true
	if m.ref.UID != "" && m.ref.UID != o.GetUID() {
		w.remove(p, key, m) // a namesake (A1)
		if p.members[key] == nil {
			w.put(p, o) // which a selector picks as well
		}
		return
	}
	if m.ref.UID == "" {
		m.ref.UID = o.GetUID()
	}
	w.byUID[o.GetUID()] = m
	m.object = o
	w.dirty[m] = true
}

// selecting returns the target of p that is a selector, or nil.
func (p *primary) selecting() *Target {
	for _, t := range p.targets {
		if t.Name == "" {
			return t
		}
	}
	return nil
}

// remove takes in that a member does not exist. One that a selector picked no
// longer counts (A3), unless its end is what is waited for.
func (w *watcher) remove(p *primary, key types.NamespacedName, m *member) {
	delete(w.byUID, m.ref.UID)
	m.object = nil
	if m.target.Name == "" && w.req.For != Deleted {
		delete(p.members, key)
		delete(w.dirty, m)
		w.members = slices.DeleteFunc(w.members, func(o *member) bool { return o == m })
		return
	}
	if m.target.Name == "" {
		delete(p.members, key) // a namesake made later is not it
	}
	w.dirty[m] = true
}

func (w *watcher) synced() bool {
	for _, p := range w.primary {
		if !p.synced {
			return false
		}
	}
	return true
}

// looked reports whether the first look is over: every list has been seen.
func (w *watcher) looked() bool { return w.synced() && len(w.unheard) == 0 }

// decide judges what has changed and says whether that settles the wait.
func (w *watcher) decide(now time.Time) (Result, bool, error) {
	for _, m := range w.members {
		if !w.dirty[m] {
			continue
		}
		delete(w.dirty, m)
		if err := w.judge(m, now); err != nil {
			return 0, false, err
		}
	}
	if !w.synced() {
		return 0, false, nil
	}
	open := false
	for _, m := range w.members {
		switch {
		case m.object == nil && !w.req.For.needsNoMembers():
			return Vanished, true, nil
		case m.verdict.State == Failed && (m.verdict.Certainty == Certain ||
			w.req.Fail == FailAtOnce ||
			w.req.Fail == FailAfterGrace && now.Sub(m.failing) >= w.req.Grace):
			return SomeFailed, true, nil
		case m.verdict.State != Done:
			open = true
		}
	}
	for _, s := range w.order {
		p := w.primary[s]
		if p.selecting() == nil || len(p.members) > 0 || w.req.For == Deleted {
			continue
		}
		if !p.seen && w.req.For != Created {
			return NothingMatched, true, nil
		}
		open = true // what was there is being replaced, or is still to come
	}
	return AllDone, !open, nil
}

func (w *watcher) judge(m *member, now time.Time) error {
	v := w.view(m)
	verdict, err := Judge(w.req.For, v)
	if err != nil {
		if _, ok := errors.AsType[*MisuseError](err); ok {
			return err
		}
		return fmt.Errorf("%s: %w", m.ref, err)
	}
	if m.object != nil && m.object.GetGeneration() < m.target.Generation {
		verdict = waiting("the server has not shown the latest change yet")
	}
	if verdict.State != Done && m.object != nil {
		if err := w.lookInto(m); err != nil {
			return err
		}
	}
	switch {
	case verdict.State != Failed:
		m.failing = time.Time{}
	case m.failing.IsZero():
		m.failing = now
	}
	if !m.said && verdict.State == Waiting && len(w.unheard) > 0 {
		m.verdict = verdict // why it waits is about to be known
		return nil
	}
	if !m.said || verdict != m.verdict {
		m.verdict, m.said = verdict, true
		w.progress(m.progress())
	}
	return nil
}

func (m *member) progress() Progress {
	return Progress{Object: m.ref, Verdict: m.verdict, Absent: m.object == nil}
}

// graceEnds returns when the next likely failure has lasted too long.
func (w *watcher) graceEnds() (at time.Time, some bool) {
	if w.req.Fail != FailAfterGrace {
		return at, false
	}
	for _, m := range w.members {
		if m.failing.IsZero() {
			continue
		}
		if end := m.failing.Add(w.req.Grace); !some || end.Before(at) {
			at, some = end, true
		}
	}
	return at, some
}

func (w *watcher) outcome(r Result) Outcome {
	out := Outcome{Result: r, Objects: make([]Progress, len(w.members))}
	for i, m := range w.members {
		out.Objects[i] = m.progress()
	}
	slices.SortStableFunc(out.Objects, func(a, b Progress) int {
		return strings.Compare(a.Object.Namespace, b.Object.Namespace)
	})
	return out
}
