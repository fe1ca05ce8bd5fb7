package node

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy/applied"
)

// A departure is the progress of taking a pod out of its services.
type departure int

// The departures, in the order of how long they hold the signal back.
const (
	departed departure = iota // every proxy has taken it out
	unknown                   // no proxy reports it: wait for a short pause
	awaited                   // a proxy will report it
)

// behind is the state of one service that selects the pod.
type behind struct {
	slices []*discoveryv1.EndpointSlice
	// coming is true if another pod of this node is going to serve.
	coming bool
}

// departs returns how far a pod has left the services, given the revision that each proxy
// has applied, and which proxies are missing. Seen is the revision of the slices in the
// services: a proxy that has applied a newer one may use the pod again.
//
// A pod that is the last one to serve gets requests until another is ready, for which
// it is worth to wait if there is one to come.
func departs(pod types.UID, services []behind, proxies map[string]uint64, seen uint64) (worst departure, missing []string) {
	if len(proxies) == 0 {
		return unknown, nil
	}
	for _, revision := range proxies {
		if revision > seen && len(services) > 0 {
			worst = awaited // the slices come in a moment
		}
	}
	for _, s := range services {
		d, newest := s.departs(pod)
		if d == departed {
			for name, revision := range proxies {
				if revision < newest {
					d = awaited
					if !slices.Contains(missing, name) {
						missing = append(missing, name)
					}
				}
			}
		}
		worst = max(worst, d)
	}
	slices.Sort(missing)
	return worst, missing
}

// departs returns whether the pod is out of the endpoints of one service, and since
// which revision.
func (s behind) departs(pod types.UID) (d departure, newest uint64) {
	mine, others, coming := unknown, false, s.coming
	for _, slice := range s.slices {
		revision, err := strconv.ParseUint(slice.ResourceVersion, 10, 64)
		if err != nil {
			return unknown, 0
		}
		newest = max(newest, revision)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			leaving := e.Conditions.Terminating != nil && *e.Conditions.Terminating
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			switch {
			case e.TargetRef != nil && e.TargetRef.UID == pod:
				if mine = departed; !leaving {
					return awaited, 0 // its controller has not seen the deletion yet
				}
			case leaving:
			case ready:
				others = true
			default:
				coming = true
			}
		}
	}
	switch {
	case mine == unknown, others:
		return mine, newest
	case coming:
		return awaited, 0
	}
	return unknown, 0 // it is the last one: requests come as long as it answers
}

// departures caches the objects that the agent reads before it stops a pod. Without
// it, the agent waits for a short pause.
type departures struct {
	slices *cache.Cache[*discoveryv1.EndpointSlice]
	leases *cache.Cache[*coordinationv1.Lease]
	// silent are proxies that let a limit pass, with the revision that they had reported by
	// then. They are not waited for again until they report another. Guarded by workers.mu.
	silent map[string]uint64
	// waiting are the workers that hold a signal back. Guarded by workers.mu.
	waiting map[*worker]bool
}

// serviceIndex is the index of slices under "namespace/service".
const serviceIndex = "service"

func newDepartures(n *Node) *departures {
	d := &departures{
		slices: cache.New(n.opts.Client, client.EndpointSlices, cache.Options[*discoveryv1.EndpointSlice]{
			Log: n.opts.Log,
			Indexes: map[string]func(*discoveryv1.EndpointSlice) []string{serviceIndex: func(s *discoveryv1.EndpointSlice) []string {
				return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
			}},
		}),
		leases: cache.New(n.opts.Client, client.Leases, cache.Options[*coordinationv1.Lease]{
			Namespace: applied.Namespace, LabelSelector: applied.Selector(), Log: n.opts.Log,
		}),
		silent: map[string]uint64{}, waiting: map[*worker]bool{},
	}
	wake := func() {
		n.workers.mu.Lock()
		defer n.workers.mu.Unlock()
		for w := range d.waiting {
			w.nudge()
		}
	}
	d.slices.Subscribe(func(_, _ *discoveryv1.EndpointSlice) { wake() })
	d.leases.Subscribe(func(_, _ *coordinationv1.Lease) { wake() })
	return d
}

// followDepartures works until ctx is cancelled.
func (n *Node) followDepartures(ctx context.Context) error {
	// A cluster that does not let its nodes read this is not asked again.
	one := metav1.ListOptions{Limit: 1, LabelSelector: applied.Selector()}
	_, _, err := client.Leases.List(ctx, n.opts.Client, applied.Namespace, one)
	if err == nil || !apierrors.IsForbidden(err) {
		_, _, err = client.EndpointSlices.List(ctx, n.opts.Client, "", metav1.ListOptions{Limit: 1})
	}
	if apierrors.IsForbidden(err) {
		n.log.Info("can't read the leases of service proxies: pods are stopped after a short pause instead", "err", err)
		<-ctx.Done()
		return nil
	}
	return run.Stages(ctx, run.Stage{
		{Name: "endpointslices", Run: n.departures.slices.Run},
		{Name: "service proxies", Run: n.departures.leases.Run},
	})
}

// servicesOf returns the services that select the pod.
func (n *Node) servicesOf(pod *corev1.Pod) []*corev1.Service {
	return slices.DeleteFunc(n.api.services.List(pod.Namespace), func(s *corev1.Service) bool { return !selects(s, pod) })
}

func selects(s *corev1.Service, pod *corev1.Pod) bool {
	return len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels))
}

// departs reports how far a pod of this node has left its services.
func (n *Node) departs(pod *corev1.Pod) (departure, []string) {
	proxies := map[string]uint64{}
	n.workers.mu.Lock()
	for _, l := range n.departures.leases.List(applied.Namespace) {
		revision := applied.Revision(l)
		if reported, silent := n.departures.silent[l.Name]; silent && reported == revision {
			continue
		}
		proxies[l.Name] = revision
	}
	n.workers.mu.Unlock()
	seen, err := strconv.ParseUint(n.departures.slices.Revision(), 10, 64)
	if err != nil {
		seen = math.MaxUint64 // a server that counts otherwise
	}
	var services []behind
	for _, s := range n.servicesOf(pod) {
		services = append(services, behind{
			slices: n.departures.slices.ByIndex(serviceIndex, s.Namespace+"/"+s.Name),
			coming: slices.ContainsFunc(n.api.pods.List(pod.Namespace), func(p *corev1.Pod) bool { return comes(s, p) }),
		})
	}
	return departs(pod.UID, services, proxies, seen)
}

// comes reports whether a pod is going to be an endpoint of a service.
func comes(s *corev1.Service, p *corev1.Pod) bool {
	return podstate.Active(p) && selects(s, p)
}

// drain begins to hold back the first signal, if the pod may get requests.
func (w *worker) drain(now time.Time, grace time.Duration) {
	limit := min(w.n.opts.DrainLimit, grace/2)
	if w.n.opts.DrainPause < 0 || w.view.Gone || limit <= 0 || !w.serves(now) {
		return
	}
	w.view.Memory.DrainUntil = now.Add(limit)
	w.draining.limit = w.view.Memory.DrainUntil
	w.n.workers.mu.Lock()
	w.n.departures.waiting[w] = true
	w.n.workers.mu.Unlock()
}

// drained ends the draining when no proxy sends requests any more, or at the limit.
func (w *worker) drained(now time.Time, grace time.Duration) {
	if w.draining.limit.IsZero() {
		return
	}
	m := &w.view.Memory
	if by := now.Add(grace / 2); by.Before(w.draining.limit) {
		w.draining.limit = by // less time than before
	}
	d, missing := w.n.departs(w.view.Pod)
	switch m.DrainUntil = w.draining.limit; {
	case d == departed || w.view.Gone:
		m.DrainUntil = now
	case d == unknown:
		// The pause is counted from the deletion.
		if by := m.DeletionSeen.Add(w.n.opts.DrainPause); by.Before(m.DrainUntil) {
			m.DrainUntil = by
		}
	}
	if now.Before(m.DrainUntil) {
		return
	}
	if d == awaited {
		w.log.Info("stopping a pod although service proxies may still send requests to it", "waited", now.Sub(m.DeletionSeen), "proxies", missing)
	}
	w.stopDraining(missing)
}

// stopDraining allows the signal. Missing are the proxies that have not reported in time.
func (w *worker) stopDraining(missing []string) {
	w.draining.limit = time.Time{}
	w.n.workers.mu.Lock()
	defer w.n.workers.mu.Unlock()
	delete(w.n.departures.waiting, w)
	for _, l := range w.n.departures.leases.List(applied.Namespace) {
		if slices.Contains(missing, l.Name) {
			w.n.departures.silent[l.Name] = applied.Revision(l)
		}
	}
}
