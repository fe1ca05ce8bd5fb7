package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// errNodeGone is for a node that vanished between decision and binding.
var errNodeGone = errors.New("the node is gone")

// of is the placement as a plug-in sees it.
func (p *placement) of(who plugin.Plugin, c client.Interface) plugin.Placement {
	return plugin.Placement{Pod: p.pod, Node: p.node, Check: p.checks[who.Name()], Client: c}
}

// settle has a placement bound.
func (k *keeper) settle(p *placement) {
	group := k.bind
	if len(p.profile.permit)+len(p.profile.bind)+len(k.interested(p.obj)) > 0 || slices.ContainsFunc(p.profile.preBind, p.keepsBusy) {
		group = k.talk // plug-ins may block
	}
	group.Go(func(ctx context.Context) {
		var v plugin.Verdict
		by := ""
		if err := run.Catch(func() error { v, by = k.carryOut(ctx, p); return nil }); err != nil {
			v = plugin.Fail(err)
		}
		k.post(func(k *keeper) { k.settled(p, v, by) })
	})
}

// keepsBusy reports whether a plug-in has something to do before a placement is bound.
func (p *placement) keepsBusy(e plugin.PreBind) bool {
	flight, ok := e.(plugin.PreFlight)
	if !ok {
		return true
	}
	busy := true // one that panics does so again, where it is an answer
	guarded(e.Name(), func() plugin.Verdict { busy = flight.Busy(p.of(e, nil)); return plugin.Verdict{} })
	return busy
}

// carryOut does all that is left to do for a placement; by is the plug-in that said no.
func (s *Scheduler) carryOut(ctx context.Context, p *placement) (v plugin.Verdict, by string) {
	if v, by = s.permitted(ctx, p); !v.OK() {
		return v, by
	}
	for _, e := range p.profile.preBind {
		if !p.keepsBusy(e) {
			continue
		}
		if v = guarded(e.Name(), func() plugin.Verdict { return e.PreBind(ctx, p.of(e, s.opts.Client)) }); !v.OK() && v.Code != plugin.Skipped {
			return v, e.Name()
		}
	}
	done := false
	for _, e := range p.profile.bind {
		if v = guarded(e.Name(), func() plugin.Verdict { return e.Bind(ctx, p.of(e, s.opts.Client)) }); v.Code == plugin.Skipped {
			continue
		}
		if !v.OK() {
			return v, e.Name()
		}
		done = true
		break
	}
	if !done {
		for _, e := range s.interested(p.obj) {
			if !e.Binds() {
				continue
			}
			if err := e.Bind(ctx, p.obj, p.node); err != nil {
				return plugin.Fail(fmt.Errorf("extender %s: binding %s/%s to %s: %w", e.Name(), p.obj.Namespace, p.obj.Name, p.node, err)), ""
			}
			done = true
			break
		}
	}
	if !done {
		if err := s.bind(ctx, p.obj, p.node); err != nil {
			return plugin.Fail(err), ""
		}
	}
	s.metrics.bound(p)
	s.recorders[p.profile.Name].Event(p.obj, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", p.obj.Namespace, p.obj.Name, p.node)
	for _, e := range p.profile.postBind {
		guarded(e.Name(), func() plugin.Verdict { e.PostBind(ctx, p.of(e, s.opts.Client)); return plugin.Verdict{} })
	}
	return plugin.Verdict{}, ""
}

// bind tells the server.
func (s *Scheduler) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	if _, ok := s.nodes.Get("", node); !ok {
		return fmt.Errorf("binding %s/%s to %s: %w", pod.Namespace, pod.Name, node, errNodeGone)
	}
	_, err := s.opts.Client.Create(ctx, client.Pods.GroupVersionResource, pod.Namespace, pod.Name, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}, "binding")
	if err != nil {
		return fmt.Errorf("binding %s/%s to %s: %w", pod.Namespace, pod.Name, node, err)
	}
	return nil
}

// settled sees to what came of a placement.
func (k *keeper) settled(p *placement, v plugin.Verdict, by string) {
	p.done = true
	uid := p.pod.UID
	if v.OK() {
		if p.seen {
			k.forget(p)
		}
		return // the watch says the rest
	}
	k.forget(p)
	if p.asked > 0 {
		k.undo = append(k.undo, p)
	}
	if k.queue.items[uid] != p.it {
		return // in the meantime the watch has told what became of it
	}
	if k.cluster.Unplace(uid) {
		k.happened(plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, OldPod: p.pod}) // others may take the place
	}
	switch {
	case v.Refused():
		k.refused(&outcome{it: p.it, pod: p.pod, refusers: []string{by}, decision: Decision{Nodes: k.nodes.Len(), before: v.Reason}})
	case apierrors.IsConflict(v.Err), apierrors.IsNotFound(v.Err):
		// Somebody was faster, and the watch is about to say so.
		k.opts.Log.Debug("lost a race", "pod", p.pod.Name, "err", v.Err)
		k.later(p.it)
	case errors.Is(v.Err, errNodeGone):
		k.queue.enqueue(p.it)
	case v.Code == plugin.Failed:
		k.failed(p.it, p.pod, v.Err)
	default:
		k.failed(p.it, p.pod, failure(by, "binding", v))
	}
}

// forget drops a placement that is over.
func (k *keeper) forget(p *placement) {
	if k.placed[p.pod.UID] == p {
		delete(k.placed, p.pod.UID)
	}
}

// jittered shortens a pause by up to a half, so that many do not try at the same time.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
