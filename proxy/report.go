package proxy

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy/applied"
)

// A reporter reports to the agents of all nodes which EndpointSlices this proxy has applied, if an
// agent may wait for that.
type reporter struct {
	client client.Interface
	node   string
	settle func(context.Context) // see [Kernel] and [Forwarder]
	log    *slog.Logger

	announces bool // the proxy can answer for addresses of load balancers
	keep      bool // the node still does when the proxy has ended
	wake      run.Bell

	mu      sync.Mutex
	applied uint64 // guarded by mu; the newest revision that an agent may wait for
}

// A failed write of the Lease is retried after firstReportPause, doubling up to lastReportPause.
const (
	firstReportPause = 50 * time.Millisecond
	lastReportPause  = 5 * time.Second
)

// note records that everything up to a revision is in effect for new connections, and that an agent
// may wait for that. 0 is no revision. It never blocks.
func (r *reporter) note(revision uint64) {
	r.mu.Lock()
	newer := revision > r.applied
	r.applied = max(r.applied, revision)
	r.mu.Unlock()
	if !newer {
		return
	}
	r.wake.Ring()
}

func (r *reporter) newest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// run creates the Lease, so that agents wait for this proxy, and then writes reports until ctx is
// cancelled. If the proxy has no permission, agents wait for a fixed time instead.
func (r *reporter) run(ctx context.Context) error {
	if r.announces && !r.keep {
		defer r.withdraw(ctx)
	}
	var lease *coordinationv1.Lease
	var written uint64
	for failures := 0; ctx.Err() == nil; {
		revision := r.newest()
		if lease != nil && revision <= written {
			select {
			case <-r.wake:
			case <-ctx.Done():
			}
			continue
		}
		r.settle(ctx)
		next, err := r.write(ctx, lease, revision)
		switch {
		case err == nil:
			lease, written, failures = next, max(revision, applied.Revision(next)), 0
			continue
		case ctx.Err() != nil:
			return nil
		case apierrors.IsForbidden(err):
			r.log.WarnContext(ctx, "no permission to report applied endpoints: pods are stopped after a fixed delay instead", "err", err)
			if r.announces {
				r.log.ErrorContext(ctx, "no permission to report that this proxy announces addresses of load balancers: other nodes may announce the same ones", "err", err)
			}
			<-ctx.Done()
			return nil
		}
		lease = nil // read it again
		if failures++; failures == 3 {
			r.log.WarnContext(ctx, "cannot report which endpoints the service proxy has applied; retrying", "err", err)
		}
		run.Pause(ctx, min(firstReportPause<<min(failures-1, 10), lastReportPause))
	}
	return nil
}

// write stores the revision in the Lease; lease is its last known state, or nil.
func (r *reporter) write(ctx context.Context, lease *coordinationv1.Lease, revision uint64) (*coordinationv1.Lease, error) {
	if lease == nil {
		found, err := client.Leases.Get(ctx, r.client, applied.Namespace, applied.Name(r.node))
		if apierrors.IsNotFound(err) {
			l := applied.Lease(r.node, revision, r.owner(ctx))
			r.mark(l, r.announces)
			return client.Leases.Create(ctx, r.client, l)
		}
		if err != nil {
			return nil, err
		}
		if applied.Revision(found) >= revision && revision == 0 && applied.Announces(found) == r.announces {
			return found, nil // from before a restart
		}
		lease = found
	}
	l := lease.DeepCopy()
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Labels[applied.Label] = "true"
	l.Annotations[applied.Annotation] = strconv.FormatUint(revision, 10)
	r.mark(l, r.announces)
	return client.Leases.Update(ctx, r.client, l, "")
}

// mark sets in a Lease whether the proxy can answer for addresses of load balancers.
func (r *reporter) mark(l *coordinationv1.Lease, announces bool) {
	if announces {
		l.Annotations[applied.AnnouncesAnnotation] = "true"
	} else {
		delete(l.Annotations, applied.AnnouncesAnnotation)
	}
}

// withdrawal is how long a proxy that ends waits for the API server.
const withdrawal = 2 * time.Second

// withdraw removes the mark from the Lease, so that other nodes answer for this one's addresses. If
// it can't reach the API server, they do so when the node is not Ready any more.
func (r *reporter) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawal)
	defer cancel()
	var err error
	for range 3 { // there may be conflicts with other writers
		var l *coordinationv1.Lease
		if l, err = client.Leases.Get(ctx, r.client, applied.Namespace, applied.Name(r.node)); err != nil || !applied.Announces(l) {
			break
		}
		l = l.DeepCopy()
		r.mark(l, false)
		if _, err = client.Leases.Update(ctx, r.client, l, ""); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		r.log.WarnContext(ctx, "cannot report that the service proxy stopped announcing addresses of load balancers", "err", err)
	}
}

// owner refers to the node of the proxy, if that is registered already.
func (r *reporter) owner(ctx context.Context) *metav1.OwnerReference {
	n, err := client.Nodes.Get(ctx, r.client, "", r.node)
	if err != nil {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: n.Name, UID: n.UID}
}

// awaited returns the revision of a slice, or 0 if no agent waits for a change of this Service
// because none of its endpoints is terminating.
func awaited(changed *discoveryv1.EndpointSlice, all []*discoveryv1.EndpointSlice) uint64 {
	revision, err := strconv.ParseUint(changed.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	for _, s := range append(all, changed) {
		for i := range s.Endpoints {
			if is(s.Endpoints[i].Conditions.Terminating) {
				return revision
			}
		}
	}
	return 0
}
