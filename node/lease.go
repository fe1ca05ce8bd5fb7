package node

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
func (n *Node) leaseRenewal() time.Duration {
	return time.Duration(n.config().NodeLeaseDurationSeconds) * time.Second / 4
}

// renewLease shows, once the node is registered, that it is alive.
func (n *Node) renewLease(ctx context.Context) error {
	select {
	case <-n.ready:
	case <-ctx.Done():
		return nil
	}
	var lease *coordinationv1.Lease
	for failures := 0; ctx.Err() == nil; {
		next, err := n.renew(ctx, lease)
		pause := n.leaseRenewal()
		switch {
		case err == nil:
			lease, failures = next, 0
		case ctx.Err() != nil:
			return nil
		default:
			lease = nil // read it again
			if failures++; failures == 2 {
				n.log.Warn("node lease not renewed, will try again", "err", err)
			}
			pause = min(pauseAfter(failures), n.leaseRenewal())
		}
		run.Pause(ctx, pause)
	}
	return nil
}

func (n *Node) renew(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if lease == nil {
		var err error
		lease, err = client.Leases.Get(ctx, n.opts.Client, corev1.NamespaceNodeLease, n.opts.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err != nil {
			node, err := client.Nodes.Get(ctx, n.opts.Client, "", n.opts.Name)
			if err != nil {
				return nil, err
			}
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Name: n.opts.Name, Namespace: corev1.NamespaceNodeLease,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			}}
			n.sign(l)
			return client.Leases.Create(ctx, n.opts.Client, l)
		}
	}
	l := lease.DeepCopy()
	n.sign(l)
	return client.Leases.Update(ctx, n.opts.Client, l, "")
}

func (n *Node) sign(l *coordinationv1.Lease) {
	seconds, now := n.config().NodeLeaseDurationSeconds, metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &n.opts.Name, &seconds, &now
}
