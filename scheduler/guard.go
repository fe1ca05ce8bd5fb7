package scheduler

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// The keeper itself asks Less, PreEnqueue, hints and Sign, which have too little to do to be asked on another goroutine
// each time. Against one that does not come back (S7) there is a note of what the keeper asks, and somebody who looks at
// it when the keeper has been busy for long. If the same is asked still, the keeper's goroutine is given up and another one
// takes its place; the old one ends when the call comes back, before it touches anything.

// A call is what the keeper asks a plug-in.
type call struct {
	point  string // lessPoint, …
	plugin string
	items  [2]*item // it is asked about these; nil where there are none
}

const (
	lessPoint       = "Less"
	preEnqueuePoint = "PreEnqueue"
	hintPoint       = "Helps"
	signPoint       = "Sign"
)

// calls is the keeper's note.
type calls struct {
	serial atomic.Uint64 // odd while something is asked
	now    call          // written before serial says so
}

// begin notes a call and returns its serial. [calls.end] must follow; between them nothing is read that is not
// the plug-in's, since it may be somebody else's by then.
func (c *calls) begin(point, name string, a, b *item) uint64 {
	c.now = call{point, name, [2]*item{a, b}}
	return c.serial.Add(1)
}

// end notes that a call has come back. If it was given up, this goroutine ends here.
func (c *calls) end(serial uint64) {
	if !c.serial.CompareAndSwap(serial, serial+1) {
		runtime.Goexit()
	}
}

// giveUp gives up the call of that serial, if it has not come back.
func (c *calls) giveUp(serial uint64) bool {
	return serial%2 == 1 && c.serial.CompareAndSwap(serial, serial+1)
}

// compare asks Less both ways, and answers less than 0 if a goes before b. One that panics knows no difference.
func (p *profile) compare(a, b *item) (order int) {
	sort := p.sort
	serial := p.calls.begin(lessPoint, p.sortName, a, b)
	defer func() {
		if recover() != nil {
			order = 0
		}
		p.calls.end(serial)
	}()
	if sort.Less(&a.Queued, &b.Queued) {
		return -1
	}
	if sort.Less(&b.Queued, &a.Queued) {
		return 1
	}
	return 0
}

// admit asks whether a pod may come into the queue, and returns the name of the plug-in that says no.
func (p *profile) admit(it *item) (v plugin.Verdict, by string) {
	pod := it.Pod
	for _, e := range p.preEnqueue {
		by = e.Name()
		serial := p.calls.begin(preEnqueuePoint, by, it, nil)
		v = guarded(by, func() plugin.Verdict { return e.PreEnqueue(pod) })
		if p.calls.end(serial); !v.OK() {
			return v, by
		}
	}
	return plugin.Verdict{}, ""
}

// helps asks a hint about an item; one that panics may help.
func (p *profile) helps(h *hinter, hint *plugin.Hint, it *item, c plugin.Change) (helps bool) {
	pod := it.Pod
	serial := p.calls.begin(hintPoint, h.name, it, nil)
	defer func() {
		if recover() != nil {
			helps = true
		}
		p.calls.end(serial)
	}()
	return hint.Helps(pod, c)
}

// sign returns the signature of a pod of an item. If a plug-in cannot sign it, it is like no other pod.
func (p *profile) sign(it *item, pod *plugin.Pod) (s plugin.Signature) {
	if len(p.signers) == 0 {
		return pod.Signature()
	}
	if !it.unsigned {
		serial := p.calls.begin(signPoint, p.signerNames, it, nil)
		v := guarded(p.signerNames, func() plugin.Verdict { s = pod.Signature(p.signers...); return plugin.Verdict{} })
		if p.calls.end(serial); v.OK() {
			return s
		}
		it.unsigned = true
	}
	return pod.Signature() + plugin.Signature("\x00"+pod.UID)
}

// attend has a keeper run until ctx is over, and when a plug-in that it asks does not come back, somebody else in its
// place.
func (k *keeper) attend(ctx context.Context) {
	var given *call
	for {
		hand, done := run.NewGroup(ctx, 0), make(chan struct{})
		hand.Go(func(ctx context.Context) {
			defer close(done)
			k.run(ctx, given)
		})
		if given = k.oversee(ctx, done); given == nil {
			hand.Stop()
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// oversee returns nil when the keeper's goroutine has ended, or the call for which it is given up.
func (k *keeper) oversee(ctx context.Context, done <-chan struct{}) *call {
	over, suspect := ctx.Done(), uint64(0)
	for {
		select {
		case <-done:
			return nil
		case <-over:
			over = nil
			k.busy.Reset(k.opts.Patience)
			continue
		case <-k.busy.C:
		}
		serial := k.calls.serial.Load()
		if serial == suspect && k.calls.giveUp(serial) {
			return new(k.calls.now)
		}
		suspect = serial
		if !k.idle.Load() {
			k.busy.Reset(k.opts.Patience)
		}
	}
}

// mostStalls is how often Less may stall before it is asked no more.
const mostStalls = 3

// resume puts a keeper in order whose goroutine was given up in the middle of something, for a call. Whatever waits for
// something has its turn, as after a start: nobody knows what was to be told to whom.
func (k *keeper) resume(c *call) {
	err := &StallError{Patience: k.opts.Patience, Plugin: c.plugin}
	k.opts.Log.Error("a plug-in is given up", "err", err, "point", c.point)
	it := c.items[0]
	if k.queue.items[it.UID] != it {
		it = nil
	}
	switch c.point {
	case lessPoint:
		// One of the two is to blame, and both go last. The plug-in may still look at them, so others take their places.
		for _, it := range c.items {
			if k.queue.items[it.UID] == it {
				other := *it
				other.unsorted = true
				k.queue.items[it.UID] = &other
			}
		}
		if k.stalls++; k.stalls == mostStalls {
			k.opts.Log.Error("pods are taken in the order in which they come from now on", "plugIn", c.plugin)
			for _, p := range k.profiles {
				p.sort = nil
			}
		}
	case hintPoint:
		// As if it were no Hinter.
		for _, p := range k.profiles {
			if h := p.hinters[c.plugin]; h != nil {
				h.mute = true
			}
		}
	case signPoint:
		if it != nil {
			it.unsigned = true
		}
	}
	k.rebuild()
	k.requeue()
	if c.point == preEnqueuePoint && it != nil {
		it.unadmitted = true
		k.failed(it, it.Pod, err)
	}
}

// requeue puts all items where they belong.
func (k *keeper) requeue() {
	q, decided := k.queue, map[*item]bool{}
	for _, o := range k.outcomes {
		decided[o.task.it] = true
	}
	gated := func(it *item) bool { return it.at == parked && it.group != nil && it.group.key.gated }
	q.active, q.backoff, q.later = nil, nil, nil
	clear(q.groups)
	clear(q.interest)
	clear(q.any)
	for uid, it := range q.items {
		was := it.at
		it.unadmitted = it.unadmitted || gated(it)
		it.at, it.group = inHand, nil
		if pod, ok := k.pods.Get(it.Namespace, it.Name); !ok || pod.UID != uid || pod.Spec.NodeName != "" || ended(pod) {
			delete(q.items, uid)
			continue
		}
		switch p := k.placed[uid]; {
		case was == later:
			q.delay(it, it.due)
		case was == backoff:
			q.again(it)
		case was != inHand, !decided[it] && (p == nil || p.done):
			q.enqueue(it)
		}
	}
}

// hinter is what a plug-in says of changes.
type hinter struct {
	name  string
	hints []plugin.Hint
	mute  bool // a hint has stalled: anything may help those that the plug-in refuses
}

func newHinter(h plugin.Hinter) (out *hinter, err error) {
	out = &hinter{name: h.Name()}
	if v := guarded(out.name, func() plugin.Verdict { out.hints = h.Hints(); return plugin.Verdict{} }); !v.OK() {
		return nil, v.Err
	}
	return out, nil
}
