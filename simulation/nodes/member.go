package nodes

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/simulation"
)

// hostIPs are the addresses of every node: packets to them stay on this machine.
var hostIPs = []string{"127.0.0.1"}

// A member is a node of the fleet. It is small: there are thousands.
type member struct {
	fleet  *Fleet
	name   string
	number int
	cut    atomic.Bool // written by the loop and, before its pods are handled, by the registration

	// The fields below belong to the loop.
	busy   bool                   // its status is being written
	pods   map[types.UID]struct{} // nil without pods
	taken  []uint64               // addresses in use, a bit for each; nil before the first pod
	last   int                    // the last address that was given out
	latest *corev1.Node           // the last version that came while busy
}

func (m *member) settle(uid types.UID) {
	if m.pods == nil {
		m.pods = map[types.UID]struct{}{}
	}
	m.pods[uid] = struct{}{}
}

func (m *member) unsettle(uid types.UID) {
	if delete(m.pods, uid); len(m.pods) == 0 {
		m.pods = nil
	}
}

// networks returns the node's parts of the pod networks.
func (m *member) networks() []netip.Prefix {
	f := m.fleet
	parts := make([]netip.Prefix, 0, len(f.opts.PodNetworks))
	for i, n := range f.opts.PodNetworks {
		parts = append(parts, simulation.NodeNetwork(n, f.bits[i], m.number))
	}
	return parts
}

// reserved are the network's own address and the gateway's, at its beginning.
const reserved = 2

// table allocates the table of addresses: an address has the same index in all networks.
func (m *member) table() {
	if m.taken == nil {
		size := 1 << m.fleet.room
		m.taken = make([]uint64, (size+63)/64)
		m.taken[0] = 1<<reserved - 1
		m.taken[len(m.taken)-1] |= 1 << ((size - 1) % 64) // the broadcast address
		m.last = reserved - 1
	}
}

// addresses implements host. It gives out addresses in turn, so that a released address is
// unused for as long as possible.
func (m *member) addresses() []string {
	m.table()
	size := 1 << m.fleet.room
	for i := range size {
		n := (m.last + 1 + i) % size
		if m.taken[n/64]&(1<<(n%64)) == 0 {
			m.taken[n/64] |= 1 << (n % 64)
			m.last = n
			var all []string
			for _, network := range m.networks() {
				all = append(all, simulation.Plus(network.Addr(), uint32(n)).String())
			}
			return all
		}
	}
	return nil
}

// place returns the index of one of the node's addresses.
func (m *member) place(ip string) (int, bool) {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return 0, false
	}
	for _, network := range m.networks() {
		if network.Contains(a) {
			b, first := a.AsSlice(), network.Addr().AsSlice()
			n := binary.BigEndian.Uint32(b[len(b)-4:]) - binary.BigEndian.Uint32(first[len(b)-4:])
			return int(n), n < 1<<m.fleet.room && simulation.Plus(network.Addr(), n) == a
		}
	}
	return 0, false
}

// release implements host.
func (m *member) release(ip string) {
	if n, ours := m.place(ip); ours && m.taken != nil {
		m.taken[n/64] &^= 1 << (n % 64)
	}
}

// claim implements host.
func (m *member) claim(ip string) {
	n, ours := m.place(ip)
	if !ours {
		return
	}
	m.table()
	m.taken[n/64] |= 1 << (n % 64)
	m.last = max(m.last, n)
}

// holds implements host.
func (m *member) holds(image string) bool { return m.fleet.opts.Plan.Holds(m.number, image) }

// object returns the Node object of a node that is not registered yet.
func (m *member) object(now time.Time) *corev1.Node {
	node := m.fleet.opts.Plan.Node(m.number)
	for _, network := range m.networks() {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, network.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	m.status(&node.Status, node, now)
	return node
}

// status sets s to the status of a healthy node as planned.
func (m *member) status(s *corev1.NodeStatus, planned *corev1.Node, now time.Time) {
	info := planned.Status.NodeInfo
	info.KubeletVersion = m.fleet.opts.Version
	s.Capacity, s.Allocatable, s.Images, s.NodeInfo = planned.Status.Capacity, planned.Status.Allocatable, planned.Status.Images, info
	s.DeclaredFeatures = planned.Status.DeclaredFeatures
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIPs[0]}, {Type: corev1.NodeHostName, Address: m.name}}
	at := metav1.NewTime(now).Rfc3339Copy()
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = at, at
		found := false
		for i := range s.Conditions {
			if old := &s.Conditions[i]; old.Type == c.Type {
				found = true
				if old.Status != c.Status || old.Reason != c.Reason {
					if old.Status == c.Status {
						c.LastTransitionTime = old.LastTransitionTime
					}
					*old = c
				}
			}
		}
		if !found {
			s.Conditions = append(s.Conditions, c)
		}
	}
}

// wanted returns the node with the wanted status, or nil if it has that already.
func (m *member) wanted(node *corev1.Node, now time.Time) *corev1.Node {
	status := node.Status
	status.Conditions = slices.Clone(status.Conditions)
	m.status(&status, m.fleet.opts.Plan.Node(m.number), now)
	if equality.Semantic.DeepEqual(&status, &node.Status) {
		return nil
	}
	want := *node
	want.Status = status
	return &want
}

// changed handles a change of the node's object; nil: it is deleted, and is created again
// when the agent is started again, or by another client.
func (m *member) changed(node *corev1.Node, now time.Time) {
	if node == nil {
		return
	}
	f := m.fleet
	switch cut := simulation.IsCut(node); {
	case cut && m.cut.CompareAndSwap(false, true):
		f.log.Info("simulated node is cut off", "node", m.name)
		f.jobs = append(f.jobs, m.renewal())
		return
	case cut:
		return
	case m.cut.CompareAndSwap(true, false):
		f.log.Info("simulated node is back", "node", m.name)
		f.jobs = append(f.jobs, m.renewal())
		m.catchUp(now)
	}
	if m.busy {
		m.latest = node
		return
	}
	want := m.wanted(node, now)
	if want == nil {
		return
	}
	m.busy = true
	f.jobs = append(f.jobs, func(ctx context.Context) func() {
		_, err := client.Nodes.Update(ctx, f.opts.As(m.name), want, "status")
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			f.log.WarnContext(ctx, "status of a simulated node not written", "node", m.name, "err", err)
			run.Pause(ctx, lastRetry)
		}
		return func() {
			m.busy = false
			next := m.latest
			m.latest = nil
			if next == nil && err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				next = node
			}
			m.changed(next, time.Now())
		}
	})
}

// catchUp handles the events that the node has missed (F3).
func (m *member) catchUp(now time.Time) {
	f := m.fleet
	missed := map[types.UID]*corev1.Pod{}
	for uid, a := range f.missed {
		if a.member == m {
			delete(f.missed, uid)
			missed[uid] = a.pod
		}
	}
	f.handlePods(missed, now)
	for uid := range m.pods {
		f.step(f.residents[uid], now)
	}
}

// registering is how many nodes are registered at the same time: as many as share one
// sync of the store well.
const registering = 64

// register creates the objects of all nodes, or updates existing ones.
func (f *Fleet) register(ctx context.Context) error {
	began := time.Now()
	hands := run.NewGroup(ctx, registering)
	defer hands.Stop()
	for _, m := range f.order {
		hands.Go(func(ctx context.Context) {
			for failures := 1; ctx.Err() == nil; failures++ {
				err := m.register(ctx)
				if err == nil || ctx.Err() != nil {
					return
				}
				if failures == 1 {
					f.log.WarnContext(ctx, "simulated node not registered, will try again", "node", m.name, "err", err)
				}
				if f.opts.Trouble != nil {
					f.opts.Trouble(m.name, err)
				}
				run.Pause(ctx, pauseAfter(failures))
			}
		})
	}
	hands.Wait()
	if ctx.Err() == nil {
		f.log.InfoContext(ctx, "simulated nodes are registered", "nodes", len(f.order), "after", time.Since(began))
		close(f.ready)
	}
	<-ctx.Done()
	return nil
}

func (m *member) register(ctx context.Context) error {
	f := m.fleet
	node, there := f.nodes.Get("", m.name)
	if !there {
		_, err := client.Nodes.Create(ctx, f.opts.Client, m.object(time.Now()))
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if node, err = client.Nodes.Get(ctx, f.opts.As(m.name), "", m.name); err != nil {
			return err
		}
	}
	if simulation.IsCut(node) {
		return nil // the loop handles it
	}
	if patch := m.labels(node); patch != nil {
		var err error
		if node, err = client.Nodes.Patch(ctx, f.opts.Client, "", m.name, types.MergePatchType, patch, ""); err != nil {
			return err
		}
	}
	want := m.wanted(node, time.Now())
	if want == nil {
		return nil
	}
	_, err := client.Nodes.Update(ctx, f.opts.As(m.name), want, "status")
	if apierrors.IsConflict(err) {
		return errors.New("the node was changed by another client")
	}
	return err
}

// labels returns a merge patch with the labels that the object lacks, or nil.
func (m *member) labels(node *corev1.Node) []byte {
	missing := map[string]string{}
	for k, v := range m.fleet.opts.Plan.Node(m.number).Labels {
		if old, there := node.Labels[k]; !there || old != v {
			missing[k] = v
		}
	}
	if len(missing) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": missing}})
	if err != nil {
		return nil // strings always encode
	}
	return patch
}
