package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/test/hosts"
)

// longer returns a time that the long runs make longer.
func longer(t *testing.T, d time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("SAMPAN_SERVICES_TIMES")
	if text == "" {
		return d
	}
	var n int
	if _, err := fmt.Sscan(text, &n); err != nil || n < 1 {
		t.Fatalf("SAMPAN_SERVICES_TIMES is %q, want a number from 1 on", text)
	}
	return time.Duration(n) * d
}

// faulty makes a world with the program's own API server and a proxy on each node, and these Services.
func faulty(t *testing.T, all ...*service) *servicesWorld {
	t.Helper()
	w := newServicesWorld(t)
	w.withSampan()
	for _, svc := range all {
		w.create(svc)
	}
	w.startProxies()
	w.caughtUp()
	return w
}

// blackhole makes a pod drop all packets to it, until the test ends.
func (s *servicesWorld) blackhole(pod *hosts.Host) {
	s.t.Helper()
	if out, err := pod.Output("nft", "add table inet hole; add chain inet hole in { type filter hook input priority 0; policy drop; }"); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// connections returns how many were made to pods.
func (s *servicesWorld) connections(pods ...string) (n int64) {
	for _, p := range pods {
		n += s.servers[p].Connections.Load()
	}
	return n
}

// TestABlackholedEndpointCostsOneTry has an endpoint whose packets are dropped. In userspace mode clients
// only notice a short delay: one other endpoint is dialled for each connection.
func TestABlackholedEndpointCostsOneTry(t *testing.T) {
	svc := &service{name: "hole", number: 1, userspace: true, members: members("pod1a", "pod2a", "pod3a")}
	w := faulty(t, svc)
	w.blackhole(podOf(w.World, "pod1a"))
	before := w.connections("pod2a", "pod3a")
	const questions = 12
	var longest time.Duration
	for _, from := range []*hosts.Host{w.Nodes[0].Pods[2], w.Nodes[1].Host, w.Client} {
		for range questions {
			began := time.Now()
			got, err := from.Ask("tcp", netip.AddrPortFrom(svc.clusterIP(0), servicePort), patient)
			longest = max(longest, time.Since(began))
			if err != nil || got.Server == "pod1a" {
				t.Errorf("%s: %v, %v", from.Name, got, err)
			}
		}
	}
	if n := w.connections("pod2a", "pod3a") - before; n != 3*questions {
		t.Errorf("for %d connections %d were made to those who answer, want one each", 3*questions, n)
	}
	t.Logf("the longest of %d connections took %v", 3*questions, longest.Round(time.Millisecond))
}

// TestEndpointsThatRefuseOrReset has an endpoint without a server, and one that resets the connections that
// it has accepted: the proxy can't repair that, but the client sees the error at once.
func TestEndpointsThatRefuseOrReset(t *testing.T) {
	refuses := &service{name: "refuses", number: 1, userspace: true, members: members("pod1a", "pod2a")}
	resets := &service{name: "resets", number: 2, userspace: true, members: members("pod2a", "pod3a")}
	resetsInKernel := &service{name: "resets-in-kernel", number: 3, members: members("pod2a", "pod3a")}
	w := faulty(t, refuses, resets, resetsInKernel)
	w.servers["pod1a"].Refuse()
	w.servers["pod3a"].Reset.Store(true)
	from := w.Nodes[0].Pods[2]
	for range 20 {
		if got, err := from.Ask("tcp", netip.AddrPortFrom(refuses.clusterIP(0), servicePort), patient); err != nil || got.Server != "pod2a" {
			w.wrong(1, "beside an endpoint that refuses: %v, %v, want an answer of pod2a", got, err)
		}
	}
	for _, svc := range []*service{resets, resetsInKernel} {
		answers, broken := 0, 0
		for n := 0; n < enough && (answers == 0 || broken == 0); n++ {
			got, err := from.Ask("tcp", netip.AddrPortFrom(svc.clusterIP(0), servicePort), patient)
			switch {
			case errors.Is(err, hosts.ErrRefused):
				broken++
			case err != nil || got.Server != "pod2a":
				w.wrong(1, "%s: %v, %v, want pod2a, or that the connection is broken at once", svc.name, got, err)
				return
			default:
				answers++
			}
		}
		if answers == 0 || broken == 0 && !svc.userspace {
			t.Errorf("%s: %d answers, %d connections broken, want some of each", svc.name, answers, broken)
		}
	}
}

// TestWhenAllEndpointsAreGoneClientsAreTold removes all endpoints of the Service, or stops their servers.
// Clients get an error and no connection hangs.
func TestWhenAllEndpointsAreGoneClientsAreTold(t *testing.T) {
	var all []*service
	for i, userspace := range []bool{false, true} {
		name := fmt.Sprintf("taken-out-%t", userspace)
		all = append(all, &service{name: name, number: 2*i + 1, userspace: userspace, nodePort: true, members: members("pod1a", "pod2a")})
		all = append(all, &service{name: "dead-" + name, number: 2*i + 2, userspace: userspace, nodePort: true, members: members("pod1b", "pod3a")})
	}
	w := faulty(t, all...)
	ask := func(want error) {
		t.Helper()
		for _, svc := range all {
			dead := want != nil && len(svc.members) > 0 && svc.userspace
			for _, d := range svc.frontends(0, w.Nodes[:1]) {
				for _, from := range []*hosts.Host{w.Nodes[0].Pods[2], w.Nodes[0].Host, w.Client} {
					for _, network := range []string{"tcp", "udp"} {
						if dead && network == "tcp" && from != w.Client {
							continue // it takes until all tries are made
						}
						if got, err := from.Ask(network, d.at, patient); !errors.Is(err, want) {
							w.wrong(1, "%s: %s asks its %s over %s: %v, %v, want %v", svc.name, from.Name, d.kind, network, got, err, want)
						}
					}
				}
			}
		}
	}
	ask(nil)
	for _, svc := range all {
		if svc.members[0].pod == "pod1a" {
			svc.members = nil
			if err := w.change(svc); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.servers["pod1b"].Refuse()
	w.servers["pod3a"].Refuse()
	w.caughtUp()
	ask(hosts.ErrRefused)
}

// TestConnectionsOutliveTheirEndpoint takes the endpoint out that a connection goes to. The
// connection goes on; flows of UDP, and clients with affinity, go to another one.
func TestConnectionsOutliveTheirEndpoint(t *testing.T) {
	var all []*service
	for i, userspace := range []bool{false, true} {
		all = append(all,
			&service{name: fmt.Sprintf("any-%t", userspace), number: 2*i + 1, userspace: userspace, members: members("pod2a")},
			&service{name: fmt.Sprintf("sticky-%t", userspace), number: 2*i + 2, userspace: userspace, sticky: true, members: members("pod2a")})
	}
	w := faulty(t, all...)
	for _, from := range []*hosts.Host{w.Nodes[0].Pods[2], w.Nodes[0].Host, w.Client} {
		for _, svc := range all {
			svc.members = members("pod2a")
			if err := w.change(svc); err != nil {
				t.Fatal(err)
			}
		}
		w.caughtUp()
		for _, svc := range all {
			at := netip.AddrPortFrom(svc.clusterIP(0), servicePort)
			stream, err := from.Dial("tcp", at, patient)
			if err != nil {
				t.Fatalf("%s: %v", svc.name, err)
			}
			defer stream.Close()
			flow, err := from.Dial("udp", at, patient)
			if err != nil {
				t.Fatalf("%s: %v", svc.name, err)
			}
			defer flow.Close()
			ask := func(over net.Conn, what, want string) {
				t.Helper()
				_ = over.SetDeadline(time.Now().Add(patient))
				if got, err := hosts.Who(over); err != nil || got.Server != want {
					w.wrong(1, "%s: %s asks on %s: %v, %v, want an answer of %s", svc.name, from.Name, what, got, err, want)
				}
			}
			ask(stream, "a connection", "pod2a")
			ask(flow, "a flow", "pod2a")
			svc.members = members("pod3a")
			if err := w.change(svc); err != nil {
				t.Fatal(err)
			}
			w.caughtUp()
			ask(stream, "a connection that was there before", "pod2a")
			// Flows are forgotten after the rules are changed, and an answer may go with them.
			for began := time.Now(); time.Since(began) < patient; {
				_ = flow.SetDeadline(time.Now().Add(silence))
				if got, err := hosts.Who(flow); err == nil && got.Server == "pod3a" {
					break
				}
			}
			ask(flow, "a flow that was there before", "pod3a")
			if got, err := from.Ask("tcp", at, patient); err != nil || got.Server != "pod3a" {
				w.wrong(1, "%s: %s asks anew: %v, %v, want an answer of pod3a", svc.name, from.Name, got, err)
			}
		}
	}
}

// TestAProxyThatIsKilledIsNotMissed kills proxies under load and starts them again, or stops them with
// --keep-rules, as for an upgrade.
func TestAProxyThatIsKilledIsNotMissed(t *testing.T) {
	svc := &service{name: "kernel", number: 1, nodePort: true, members: members("pod1a", "pod2a", "pod3a")}
	w := faulty(t, svc)
	at, port := netip.AddrPortFrom(svc.clusterIP(0), servicePort), netip.AddrPortFrom(w.Nodes[0].IP[0], svc.nodePorts())
	var askers []asker
	const often = 10 * time.Millisecond
	for _, kept := range []bool{true, false} {
		for _, network := range []string{"tcp", "udp"} {
			askers = append(askers,
				asker{from: w.Nodes[0].Pods[2], network: network, at: at, kept: kept, pause: often},
				asker{from: w.Nodes[0].Host, network: network, at: at, kept: kept, pause: often},
				asker{from: w.Client, network: network, at: port, kept: kept, pause: often})
		}
	}
	download, err := w.Client.Dial("tcp", port, patient)
	if err != nil {
		t.Fatal(err)
	}
	defer download.Close()
	const size = 1 << 40 // longer than the test
	if _, err := fmt.Fprintf(download, "get %d\n", int64(size)); err != nil {
		t.Fatal(err)
	}
	// It takes what comes slowly, and so goes on all the time.
	chunk := make([]byte, 64<<10)
	load := w.startLoad(askers...)
	for round := range 4 {
		if round%2 == 0 {
			w.proxies[0].Kill()
		} else if err := w.proxies[0].Stop(); err != nil {
			t.Errorf("%v\n%s", err, w.proxies[0].Said())
		}
		<-time.After(longer(t, 200*time.Millisecond))
		svc.members = members([][]string{{"pod1a", "pod2a"}, {"pod2a", "pod3a"}, {"pod1a", "pod3a"}}[round%3]...)
		if err := w.change(svc); err != nil {
			t.Fatal(err)
		}
		w.startProxy(0, "--keep-rules")
		w.caughtUp()
		_ = download.SetReadDeadline(time.Now().Add(patient))
		if _, err := io.ReadFull(download, chunk); err != nil {
			t.Errorf("the download in round %d: %v", round, err)
		}
	}
	for _, fault := range load.end() {
		w.wrong(1, "%s", fault)
	}
	if load.answers.Load() < 100 {
		t.Errorf("only %d answers", load.answers.Load())
	}
	t.Logf("%d answers", load.answers.Load())
}

// cutOff drops what the nodes send to the API server, until the function that it returns is called.
func (s *servicesWorld) cutOff() (mend func()) {
	s.t.Helper()
	do := func(rules string) {
		for _, n := range s.Nodes {
			if out, err := n.Output("nft", rules); err != nil {
				s.t.Fatalf("%s: %v: %s", n.Name, err, out)
			}
		}
	}
	do(fmt.Sprintf("add table ip away; add chain ip away out { type filter hook output priority 0; }; add rule ip away out ip daddr %s drop", hosts.ControlAddress()))
	return func() { do("delete table ip away") }
}

// TestAnAPIServerThatIsAwayIsNotMissed kills the API server under load and starts it again, and then disconnects
// the nodes from it without closing connections. New connections are made all the time. Meanwhile an endpoint
// fails, which cannot be removed from its slice: where connections are relayed, they go to other endpoints.
// Changes made meanwhile are applied afterwards.
func TestAnAPIServerThatIsAwayIsNotMissed(t *testing.T) {
	kernel := &service{name: "kernel", number: 1, nodePort: true, members: members("pod1a", "pod2a", "pod3a")}
	user := &service{name: "user", number: 2, nodePort: true, userspace: true, members: members("pod1b", "pod2b", "pod3b")}
	w := faulty(t, kernel, user)
	var askers []asker
	for _, svc := range []*service{kernel, user} {
		for _, network := range []string{"tcp", "udp"} {
			if svc == user && network == "udp" {
				continue // what a server had not read yet goes with it
			}
			askers = append(askers,
				asker{from: w.Nodes[1].Pods[2], network: network, at: netip.AddrPortFrom(svc.clusterIP(0), servicePort), pause: 10 * time.Millisecond},
				// What is kept goes with the endpoint.
				asker{from: w.Client, network: network, at: netip.AddrPortFrom(w.Nodes[2].IP[0], svc.nodePorts()), kept: svc == kernel, pause: 10 * time.Millisecond})
		}
	}
	load := w.startLoad(askers...)
	change := func() {
		t.Helper()
		slices.Reverse(kernel.members)
		kernel.members, user.members = kernel.members[:2], user.members[1:]
		for _, svc := range []*service{kernel, user} {
			if err := w.change(svc); err != nil {
				t.Fatal(err)
			}
		}
	}
	half := longer(t, time.Second) / 2
	away := func(how string, meanwhile func()) {
		t.Helper()
		before := load.answers.Load()
		<-time.After(half)
		dead := user.members[0].pod
		w.servers[dead].Refuse()
		meanwhile()
		answered := w.connections("pod1b", "pod2b", "pod3b")
		for range 12 {
			if got, err := w.Client.Ask("udp", netip.AddrPortFrom(w.Nodes[2].IP[0], user.nodePorts()), patient); err != nil || got.Server == dead {
				t.Errorf("%s, and %s dead: asked over udp: %v, %v", how, dead, got, err)
			}
		}
		<-time.After(half)
		if w.connections("pod1b", "pod2b", "pod3b") == answered {
			t.Errorf("%s, and %s dead: no connection came to another one", how, dead)
		}
		t.Logf("%s for %v, %s dead for half of it: %d answers", how, 2*half, dead, load.answers.Load()-before)
	}
	caughtUp := func() {
		t.Helper()
		began := time.Now()
		w.caughtUp()
		t.Logf("all nodes have caught up after %v", time.Since(began).Round(time.Millisecond))
		w.matrix([]service{*kernel, *user})
	}

	w.api.Kill()
	away("the server killed", func() {})
	if err := w.api.Start(); err != nil {
		t.Fatal(err)
	}
	change()
	caughtUp()

	mend := w.cutOff()
	away("the nodes cut off", change)
	mend()
	caughtUp()

	for _, fault := range load.end() {
		w.wrong(2, "%s", fault)
	}
}

// TestTheOlderServiceHasTheAddress has two Services that want one external IP.
func TestTheOlderServiceHasTheAddress(t *testing.T) {
	first := &service{name: "z-first", number: 1, external: true, members: members("pod1a", "pod2a")}
	second := &service{name: "a-second", number: 1, userspace: true, external: true, members: members("pod1b", "pod3a")}
	w := newServicesWorld(t)
	w.withSampan()
	w.create(first)
	w.startProxies()
	w.caughtUp()
	<-time.After(time.Second + 100*time.Millisecond) // ages are compared by it
	o := second.object(w.World, 1)
	o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil
	ctx := t.Context()
	services := w.cs.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cs.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, second.slice(w.World, 0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.caughtUp()
	at := frontend{kind: "external IP", at: netip.AddrPortFrom(first.outerIP(0), servicePort)}
	ask := func(svc *service) {
		for _, from := range []*hosts.Host{w.Nodes[0].Pods[2], w.Nodes[2].Host, w.Client} {
			w.ask(svc, from, 0, at, "tcp")
			w.ask(svc, from, 0, at, "udp")
		}
	}
	ask(first)
	// A proxy that starts now finds the same.
	w.proxies[0].Kill()
	w.startProxy(0)
	w.caughtUp()
	ask(first)
	events := awaitEvents(t, w, second.name)
	if !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, first.name) }) {
		t.Errorf("the events of %s are %q, want one that names %s", second.name, events, first.name)
	}
	if err := services.Delete(ctx, first.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.caughtUp()
	ask(second)
}

// awaitEvents returns what events say of a Service, when there is one.
func awaitEvents(t *testing.T, w *servicesWorld, name string) (said []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(said) == 0 && ctx.Err() == nil {
		list, err := w.cs.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			said = append(said, e.Reason+": "+e.Message)
		}
		if len(said) == 0 {
			<-time.After(50 * time.Millisecond)
		}
	}
	return said
}
