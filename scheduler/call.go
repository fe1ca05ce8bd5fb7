package scheduler

import (
	"runtime/debug"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// This file calls plug-ins on the goroutine of the loop. A panic of a plug-in is recovered here and counts as an answer
// (scheduler-S7).

// guarded calls a plug-in and returns its verdict, or a failure if it panics.
func guarded(name string, call func() plugin.Verdict) (v plugin.Verdict) {
	defer func() {
		if r := recover(); r != nil {
			v = plugin.Fail(&PanicError{name, r, debug.Stack()})
		}
	}()
	return call()
}

// compare calls Less in both directions and returns less than 0 if a goes before b. If Less panics, a and b are equal.
func (p *profile) compare(a, b *item) (order int) {
	defer func() {
		if recover() != nil {
			order = 0
		}
	}()
	if p.sort.Less(&a.Queued, &b.Queued) {
		return -1
	}
	if p.sort.Less(&b.Queued, &a.Queued) {
		return 1
	}
	return 0
}

// admit calls the PreEnqueue plug-ins. It returns the first verdict that is not a success, and the name of the plug-in.
func (p *profile) admit(pod *plugin.Pod) (v plugin.Verdict, by string) {
	for _, e := range p.preEnqueue {
		by = e.Name()
		if v = guarded(by, func() plugin.Verdict { return e.PreEnqueue(pod) }); !v.OK() {
			return v, by
		}
	}
	return plugin.Verdict{}, ""
}

// helps calls a hint about a pod. It returns true if the hint panics.
func helps(hint *plugin.Hint, pod *plugin.Pod, c plugin.Change) (helps bool) {
	defer func() {
		if recover() != nil {
			helps = true
		}
	}()
	return hint.Helps(pod, c)
}

// sign returns the signature of a pod of an item. If a Signer panics, the signature is different from that of every
// other pod.
func (p *profile) sign(it *item, pod *plugin.Pod) (s plugin.Signature) {
	if pod.Excess != "" {
		return plugin.Signature("\x00" + pod.UID) // it is not decided about, and would be a copy of all of it
	}
	if len(p.signers) == 0 {
		return pod.Signature()
	}
	if !it.unsigned {
		v := guarded("Signer", func() plugin.Verdict { s = pod.Signature(p.signers...); return plugin.Verdict{} })
		if v.OK() {
			return s
		}
		it.unsigned = true
	}
	return pod.Signature() + plugin.Signature("\x00"+pod.UID)
}

// hintsOf returns the hints of a plug-in.
func hintsOf(h plugin.Hinter) (hints []plugin.Hint, err error) {
	if v := guarded(h.Name(), func() plugin.Verdict { hints = h.Hints(); return plugin.Verdict{} }); !v.OK() {
		return nil, v.Err
	}
	return hints, nil
}
