package test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/test/hosts"
)

// Each node's proxy reports the EndpointSlices that it has applied (docs/decisions/0008) in a
// Lease with this label, whose annotation has the revision.
const (
	appliedNamespace  = "kube-system"
	appliedLabel      = "sampan.dev/service-proxy"
	appliedAnnotation = "sampan.dev/applied-endpoints"
)

// A replaceable endpoint is a server at an address of its own.
type replaceable struct {
	node   int
	pod    *hosts.Host
	at     netip.AddrPort
	server *hosts.Server
	state  string // "serves", "leaves" or "gone"
}

// TestEndpointsAreReplacedUnderLoad replaces endpoints a hundred times a second while clients send requests, as
// agents do: an endpoint is marked as terminating; once every proxy has reported that it has applied this, its
// server stops listening, and then the endpoint is removed. No request may fail.
func TestEndpointsAreReplacedUnderLoad(t *testing.T) {
	for _, userspace := range []bool{false, true} {
		t.Run(map[bool]string{false: "kernel", true: "userspace"}[userspace], func(t *testing.T) {
			replaceUnderLoad(t, &service{name: "busy", number: 1, userspace: userspace, nodePort: true})
		})
	}
}

const (
	replacements = 100 // in a second
	perPod       = 40  // endpoints: a few wait long until no connection is on its way to them
	serving      = 6   // endpoints at a time

	// acceptPause makes connections stand in a server's queue, where they are lost when it
	// stops to listen.
	acceptPause = 3 * time.Millisecond
)

func replaceUnderLoad(t *testing.T, svc *service) {
	w := faulty(t, svc)
	c := &churn{w: w, svc: svc, applied: map[string]uint64{}, heard: make(chan struct{})}
	for i, n := range w.Nodes {
		p := n.Pods[1]
		for j := range perPod {
			own := netip.PrefixFrom(hosts.At(hosts.PodNetwork(0, i+1), 100+j), 24)
			if err := p.Address("eth0", own); err != nil {
				t.Fatal(err)
			}
			c.all = append(c.all, &replaceable{node: i + 1, pod: p, at: netip.AddrPortFrom(own.Addr(), 9090), state: "gone"})
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c.follow(ctx)
	for range serving {
		c.begin(c.pick("gone"))
	}
	if _, err := c.write(ctx); err != nil {
		t.Fatal(err)
	}
	w.caughtUp()

	var askers []asker
	for _, from := range []*hosts.Host{w.Nodes[0].Pods[2], w.Nodes[1].Pods[2], w.Nodes[2].Host, w.Client} {
		at := netip.AddrPortFrom(svc.clusterIP(0), servicePort)
		if from == w.Client {
			at = netip.AddrPortFrom(w.Nodes[1].IP[0], svc.nodePorts())
		}
		for range 2 {
			askers = append(askers, asker{from: from, network: "tcp", at: at, pause: time.Millisecond})
		}
	}
	load := w.startLoad(askers...)
	pace := time.NewTicker(time.Second / replacements)
	defer pace.Stop()
	n, late := 0, 0
	began := time.Now()
	for span := longer(t, 4*time.Second); time.Since(began) < span; <-pace.C {
		// What a slow machine is behind with comes in one change.
		done := c.replace(ctx, int(time.Since(began).Seconds()*replacements)-n)
		if done == 0 {
			late++
		}
		n += done
	}
	took := time.Since(began)
	c.done.Wait()
	for _, fault := range load.end() {
		w.wrong(1, "%s", fault)
	}
	if n == 0 || load.answers.Load() == 0 {
		t.Errorf("%d replacements, %d answers: nothing was tried", n, load.answers.Load())
	}
	t.Logf("%d endpoints replaced in %v (%.0f/s; %d times all were on their way), %d answers, none failed: %t",
		n, took.Round(time.Millisecond), float64(n)/took.Seconds(), late, load.answers.Load(), !t.Failed())
}

// A churn replaces endpoints.
type churn struct {
	w    *servicesWorld
	svc  *service
	done sync.WaitGroup

	mu  sync.Mutex
	all []*replaceable // guarded by mu

	heardMu sync.Mutex
	applied map[string]uint64 // guarded by heardMu; by Lease
	heard   chan struct{}     // guarded by heardMu; closed with the next news
}

// follow hears what the proxies have applied, until ctx is over.
func (c *churn) follow(ctx context.Context) {
	leases := c.w.cs.CoordinationV1().Leases(appliedNamespace)
	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: appliedLabel + "=true"})
	if err != nil {
		c.w.t.Fatal(err)
	}
	for _, l := range list.Items {
		c.note(l.Name, l.Annotations[appliedAnnotation])
	}
	if len(list.Items) != len(c.w.Nodes) {
		c.w.t.Fatalf("%d proxies have a Lease, want %d", len(list.Items), len(c.w.Nodes))
	}
	news, err := leases.Watch(ctx, metav1.ListOptions{LabelSelector: appliedLabel + "=true", ResourceVersion: list.ResourceVersion})
	if err != nil {
		c.w.t.Fatal(err)
	}
	go func() {
		for e := range news.ResultChan() {
			if m, ok := e.Object.(metav1.Object); ok && e.Type != watch.Deleted {
				c.note(m.GetName(), m.GetAnnotations()[appliedAnnotation])
			}
		}
	}()
	context.AfterFunc(ctx, news.Stop)
}

func (c *churn) note(lease, revision string) {
	r, _ := strconv.ParseUint(revision, 10, 64)
	c.heardMu.Lock()
	defer c.heardMu.Unlock()
	c.applied[lease] = max(c.applied[lease], r)
	close(c.heard)
	c.heard = make(chan struct{})
}

// await blocks until all proxies have applied a revision.
func (c *churn) await(ctx context.Context, revision uint64) bool {
	deadline := time.After(patient)
	for {
		c.heardMu.Lock()
		all, news := true, c.heard
		for _, r := range c.applied {
			all = all && r >= revision
		}
		c.heardMu.Unlock()
		if all {
			return true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return false
		case <-deadline:
			c.w.t.Errorf("not all proxies have told within %v that they have applied revision %d: %v", patient, revision, c.applied)
			return false
		}
	}
}

// pick returns the one of a state that has had it for longest, or nil.
func (c *churn) pick(state string) *replaceable {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.all, func(r *replaceable) bool { return r.state == state })
	if i < 0 {
		return nil
	}
	r := c.all[i]
	c.all = append(slices.Delete(c.all, i, i+1), r)
	return r
}

func (c *churn) set(r *replaceable, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.state = state
}

// begin starts the server of an endpoint.
func (c *churn) begin(r *replaceable) {
	var err error
	if r.server, err = r.pod.ServeAt(r.at, acceptPause); err != nil {
		c.w.t.Errorf("starting a server that has ended: %v", err)
		return
	}
	c.set(r, "serves")
}

// replace takes so many endpoints out and puts others in, as far as there are some that are
// not on their way, and returns how many.
func (c *churn) replace(ctx context.Context, n int) int {
	var leave []*replaceable
	for range min(n, serving-1) { // one stays
		next := c.pick("gone")
		if next == nil {
			break
		}
		old := c.pick("serves")
		c.set(old, "leaves")
		c.begin(next)
		leave = append(leave, old)
	}
	if len(leave) == 0 {
		return 0
	}
	revision, err := c.write(ctx)
	if err != nil {
		c.w.t.Errorf("writing the EndpointSlice: %v", err)
		return 0
	}
	c.done.Go(func() {
		if !c.await(ctx, revision) {
			return
		}
		for _, old := range leave {
			c.done.Go(func() {
				old.server.Drain()
				c.set(old, "gone")
			})
		}
	})
	return len(leave)
}

// write stores the serving and terminating endpoints, and returns the revision.
func (c *churn) write(ctx context.Context) (uint64, error) {
	s := c.svc.slice(c.w.World, 0)
	s.Ports = s.Ports[:1]
	s.Ports[0].Port = new(int32(9090))
	c.mu.Lock()
	for _, r := range c.all {
		if r.state == "gone" {
			continue
		}
		serves := r.state == "serves"
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{r.at.Addr().String()}, NodeName: new(fmt.Sprintf("node%d", r.node)),
			Conditions: discoveryv1.EndpointConditions{Ready: new(serves), Serving: new(true), Terminating: new(!serves)},
		})
	}
	c.mu.Unlock()
	made, err := c.w.cs.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Update(ctx, s, metav1.UpdateOptions{})
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(made.ResourceVersion, 10, 64)
}
