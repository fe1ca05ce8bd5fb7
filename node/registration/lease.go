package registration

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// leaseRenewal is how often the node's lease is renewed: four times within nodeLeaseDurationSeconds.
func (r *Registrar) leaseRenewal() time.Duration {
	return time.Duration(r.opts.Config.NodeLeaseDurationSeconds) * time.Second / 4
}

// RenewLease shows, once the node is registered, that it is alive.
func (r *Registrar) RenewLease(ctx context.Context) error {
	select {
	case <-r.ready:
	case <-ctx.Done():
		return nil
	}
	var lease *coordinationv1.Lease
	for failures := 0; ctx.Err() == nil; {
		next, err := r.renew(ctx, lease)
		pause := r.leaseRenewal()
		switch {
		case err == nil:
			lease, failures = next, 0
		case ctx.Err() != nil:
			return nil
		default:
			lease = nil // read it again
			if failures++; failures == 2 {
				r.opts.Log.Warn("node lease not renewed, will try again", "err", err)
			}
			pause = min(pauseAfter(failures), r.leaseRenewal())
		}
		run.Pause(ctx, pause)
	}
	return nil
}

func (r *Registrar) renew(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if lease == nil {
		var err error
		lease, err = client.Leases.Get(ctx, r.opts.Client, corev1.NamespaceNodeLease, r.opts.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err != nil {
			node, err := client.Nodes.Get(ctx, r.opts.Client, "", r.opts.Name)
			if err != nil {
				return nil, err
			}
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Name: r.opts.Name, Namespace: corev1.NamespaceNodeLease,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			}}
			r.sign(l)
			return client.Leases.Create(ctx, r.opts.Client, l)
		}
	}
	l := lease.DeepCopy()
	r.sign(l)
	return client.Leases.Update(ctx, r.opts.Client, l, "")
}

func (r *Registrar) sign(l *coordinationv1.Lease) {
	seconds, now := r.opts.Config.NodeLeaseDurationSeconds, metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &r.opts.Name, &seconds, &now
}
