package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// longestHold is how long a Permit can hold a pod; upstream's number.
const longestHold = 15 * time.Minute

// held are the placements that Permits hold.
type held struct {
	mu      sync.Mutex
	tickets map[string]map[types.UID]*ticket // guarded by mu; by plug-in
}

// A ticket is a placement that one plug-in holds.
type ticket struct {
	placement plugin.Placement
	answer    chan plugin.Verdict // takes one
	until     time.Duration
	by        string
}

// permitted calls the Permit plug-ins and waits while one of them holds the placement.
func (s *Scheduler) permitted(ctx context.Context, p *placement) (plugin.Verdict, string) {
	var tickets []*ticket
	defer func() {
		for _, t := range tickets {
			s.held.drop(t)
		}
	}()
	for _, e := range p.profile.permit {
		t := &ticket{p.of(e, s.opts.Client), make(chan plugin.Verdict, 1), 0, e.Name()}
		v := guarded(e.Name(), func() (v plugin.Verdict) {
			v, t.until = e.Permit(ctx, t.placement, holder{&s.held, e.Name()})
			return v
		})
		switch {
		case v.Code == plugin.Wait:
			tickets = append(tickets, t)
			s.held.add(t)
		case !v.OK():
			return v, e.Name()
		}
	}
	for _, t := range tickets {
		if v := t.wait(ctx); !v.OK() {
			return v, t.by
		}
	}
	return plugin.Verdict{}, ""
}

func (t *ticket) wait(ctx context.Context) plugin.Verdict {
	timer := time.NewTimer(min(t.until, longestHold))
	defer timer.Stop()
	select {
	case v := <-t.answer:
		return v
	case <-timer.C:
		return plugin.Refuse(fmt.Sprintf("rejected due to timeout after waiting %v at plugin %s", min(t.until, longestHold), t.by))
	case <-ctx.Done():
		return plugin.Fail(context.Cause(ctx))
	}
}

func (h *held) add(t *ticket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tickets == nil {
		h.tickets = map[string]map[types.UID]*ticket{}
	}
	if h.tickets[t.by] == nil {
		h.tickets[t.by] = map[types.UID]*ticket{}
	}
	h.tickets[t.by][t.placement.Pod.UID] = t
}

func (h *held) drop(t *ticket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tickets[t.by][t.placement.Pod.UID] == t {
		delete(h.tickets[t.by], t.placement.Pod.UID)
	}
}

// answer answers for all plug-ins that hold a pod, or one, and reports whether any did.
func (h *held) answer(by string, pod types.UID, v plugin.Verdict) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	any := false
	for name, tickets := range h.tickets {
		if t := tickets[pod]; t != nil && (by == "" || by == name) {
			delete(tickets, pod)
			t.answer <- v // does not block: a ticket is found only once, and has room for one answer
			any = true
		}
	}
	return any
}

// holder implements [plugin.Held]: the placements that one plug-in holds.
type holder struct {
	held *held
	by   string
}

func (h holder) Each(f func(plugin.Placement) bool) {
	h.held.mu.Lock()
	tickets := slices.SortedFunc(maps.Values(h.held.tickets[h.by]), func(a, b *ticket) int {
		return strings.Compare(string(a.placement.Pod.UID), string(b.placement.Pod.UID))
	})
	h.held.mu.Unlock()
	for _, t := range tickets {
		if !f(t.placement) {
			return
		}
	}
}

func (h holder) Allow(pod types.UID) bool { return h.held.answer(h.by, pod, plugin.Verdict{}) }

func (h holder) Reject(pod types.UID, reason string) bool {
	return h.held.answer(h.by, pod, plugin.Refuse(reason))
}
