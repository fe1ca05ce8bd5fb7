package nodes

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	// A node's lease lasts as long as Kubernetes has it, and is renewed four times
	// within that, in a fleet that is small enough.
	leaseSeconds  = 40
	leaseInterval = 10 * time.Second

	// leasesPerSecond bounds what leases cost: in a larger fleet they last longer, and
	// the lifecycle controller is as patient as a lease says.
	leasesPerSecond = 16
	// leasing is how many leases are renewed at the same time.
	leasing = 16
)

// pace returns in how many rounds all leases are renewed, and how many seconds each
// lasts.
func (f *Fleet) pace() (rounds, seconds int) {
	perRound := leasesPerSecond * int(leaseInterval/time.Second)
	rounds = (len(f.order) + perRound - 1) / perRound
	return rounds, rounds * leaseSeconds
}

// renewLeases shows that the nodes are alive: all at the start, then a few at a time,
// so that there is a wake-up every leaseInterval and not one per node.
func (f *Fleet) renewLeases(ctx context.Context) error {
	rounds, _ := f.pace()
	n := len(f.order)
	failing := f.renewSome(ctx, f.order, false)
	for round := 0; run.Pause(ctx, leaseInterval); round = (round + 1) % rounds {
		failing = f.renewSome(ctx, f.order[round*n/rounds:(round+1)*n/rounds], failing)
	}
	return nil
}

// renewSome renews leases, and reports whether one failed. Only the first failure in a
// row is logged.
func (f *Fleet) renewSome(ctx context.Context, members []*member, failing bool) bool {
	hands := run.NewGroup(ctx, leasing)
	defer hands.Stop()
	errs := make([]error, len(members))
	for i, m := range members {
		hands.Go(func(ctx context.Context) {
			if !m.cut.Load() {
				errs[i] = m.renew(ctx)
			}
		})
	}
	hands.Wait()
	for i, err := range errs {
		if err == nil || ctx.Err() != nil {
			continue
		}
		if !failing {
			f.log.WarnContext(ctx, "leases of simulated nodes not renewed, will try again", "node", members[i].name, "err", err)
		}
		return true
	}
	return false
}

// renewal returns the job of renewing the lease once.
func (m *member) renewal() job {
	return func(ctx context.Context) func() {
		if err := m.renew(ctx); err != nil && ctx.Err() == nil {
			m.fleet.log.WarnContext(ctx, "lease of a simulated node not written", "node", m.name, "err", err)
		}
		return func() {}
	}
}

// renew renews the lease. The last renewal of a node that is cut off sets the duration of
// a real node's lease, so that it counts as lost as soon as a real node would.
func (m *member) renew(ctx context.Context) error {
	for {
		cut := m.cut.Load()
		if err := m.sign(ctx, cut); err != nil {
			return err
		}
		if m.cut.Load() == cut {
			return nil
		}
	}
}

func (m *member) sign(ctx context.Context, cut bool) error {
	f := m.fleet
	_, seconds := f.pace()
	if cut {
		seconds = leaseSeconds
	}
	as := f.opts.As(m.name)
	patch := fmt.Appendf(nil, `{"spec":{"leaseDurationSeconds":%d,"renewTime":%q}}`, seconds, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := client.Leases.Patch(ctx, as, corev1.NamespaceNodeLease, m.name, types.MergePatchType, patch, "")
	if !apierrors.IsNotFound(err) {
		return err
	}
	// The cache may not have seen yet that the node was made.
	node, err := client.Nodes.Get(ctx, as, "", m.name)
	switch {
	case apierrors.IsNotFound(err):
		return nil // another client has deleted it
	case err != nil:
		return err
	}
	duration, now := int32(seconds), metav1.NowMicro()
	_, err = client.Leases.Create(ctx, as, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &m.name, LeaseDurationSeconds: &duration, RenewTime: &now},
	})
	return err
}
