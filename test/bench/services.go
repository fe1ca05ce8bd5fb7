package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/sampan-io/sampan/test/hosts"
)

// The service proxy is measured on hosts made of network namespaces (package hosts): a
// client asks a node port of node 1, where the proxy runs, for a pod there. The floors
// are on node 2, where it does not run: the shortest forwarder that can be written with
// package net, one rule of nftables made by hand, and no way round at all.

// bareForwardVerb makes this program the bare forwarder: bare-forward LISTEN TO.
const bareForwardVerb = "bare-forward"

// forwardBare forwards connections until it is killed.
func forwardBare(listen, to string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			in := c.(*net.TCPConn)
			defer func() { _ = in.Close() }()
			c, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			out := c.(*net.TCPConn)
			defer func() { _ = out.Close() }()
			done := make(chan struct{})
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.CloseWrite()
				close(done)
			}()
			_, _ = io.Copy(in, out)
			_ = in.CloseWrite()
			<-done
		}()
	}
}

const (
	podPort     = 8080
	handPort    = 31999 // of the rule made by hand, and of the bare forwarder behind it
	barePort    = 31998
	kernelPort  = 30001 // node ports
	relayedPort = 30002
)

// A network is what the proxy is measured on.
type network struct {
	*hosts.World
	b     *bench
	api   *hosts.API
	cs    *kubernetes.Clientset
	proxy *hosts.Process
}

func (b *bench) services(ctx context.Context) (err error) {
	w, err := hosts.New(2)
	if err != nil {
		return err
	}
	defer w.Close()
	// Tens of thousands of connections are made within a minute: hosts remember each for that long, nodes for a few seconds.
	for _, h := range []*hosts.Host{w.Client, w.Nodes[0].Host, w.Nodes[1].Host} {
		if err := errors.Join(h.Sysctl("net/ipv4/ip_local_port_range", "1024 65535"), h.Sysctl("net/ipv4/tcp_tw_reuse", "1")); err != nil {
			return err
		}
	}
	for _, n := range w.Nodes[:2] {
		if err := n.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_close", "1"); err != nil {
			return err
		}
		for _, p := range n.Pods {
			s, err := p.Serve(podPort)
			if err != nil {
				return err
			}
			defer s.Close()
		}
	}
	dir := filepath.Join(b.dir, "services")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	n := &network{World: w, b: b}
	if n.api, err = w.StartAPI(b.program, dir); err != nil {
		return err
	}
	defer n.api.Close()
	if n.cs, err = kubernetes.NewForConfig(n.api.Config); err != nil {
		return err
	}
	defer func() {
		if n.proxy != nil {
			n.proxy.Kill()
		}
	}()
	if err := n.floors(); err != nil {
		return err
	}
	if err := n.create(ctx, 1, 1, nil, kernelPort); err != nil {
		return err
	}
	if err := n.create(ctx, 2, 1, map[string]string{"sampan.dev/proxy-mode": "userspace"}, relayedPort); err != nil {
		return err
	}
	if _, err := n.start(ctx, 2); err != nil {
		return err
	}
	if err := n.paths(); err != nil {
		return err
	}
	return n.growth(ctx)
}

// floors makes what the proxy is compared with.
func (n *network) floors() error {
	floor, pod := n.Nodes[1], n.Nodes[1].Pods[0]
	rules := fmt.Sprintf(`add table ip hand
add chain ip hand in { type nat hook prerouting priority dstnat; }
add rule ip hand in tcp dport %d dnat to %s:%d
add chain ip hand out { type nat hook postrouting priority srcnat; }
add rule ip hand out ip daddr %s tcp dport %d masquerade`, handPort, pod.IP[0], podPort, pod.IP[0], podPort)
	if out, err := floor.Output("nft", strings.ReplaceAll(rules, "\n", "; ")); err != nil {
		return fmt.Errorf("the rule made by hand: %w: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = floor.Run(exec.Command(self, bareForwardVerb, fmt.Sprintf(":%d", barePort), netip.AddrPortFrom(pod.IP[0], podPort).String()))
	return err
}

// create makes the i-th Service, with so many endpoints, of which the first is a pod of node 1.
func (n *network) create(ctx context.Context, i, endpoints int, annotations map[string]string, nodePort int32) error {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i), Annotations: annotations},
		Spec: corev1.ServiceSpec{
			ClusterIP: clusterIP(i).String(), Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(podPort), NodePort: nodePort}},
		},
	}
	if nodePort != 0 {
		svc.Spec.Type = corev1.ServiceTypeNodePort
	}
	if _, err := n.cs.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := n.cs.DiscoveryV1().EndpointSlices("default").Create(ctx, n.slice(i, endpoints, n.Nodes[0].Pods[0]), metav1.CreateOptions{})
	return err
}

// clusterIP is that of the i-th Service, counted from 1.
func clusterIP(i int) netip.Addr { return hosts.At(hosts.Services[0], 256+i) }

func (n *network) slice(i, endpoints int, first *hosts.Host) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i), Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("s-%d", i)}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(podPort))}},
	}
	for j := range endpoints {
		a := first.IP[0]
		if j > 0 { // of no pod
			a = hosts.At(netip.MustParsePrefix("10.128.0.0/10"), 0)
			b := a.As4()
			k := (i-1)*endpoints + j
			b[1], b[2], b[3] = b[1]+byte(k>>16), byte(k>>8), byte(k)
			a = netip.AddrFrom4(b)
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: new("node2")})
	}
	return s
}

// start starts the proxy of node 1, and returns how long that took until a Service with
// one endpoint was reached.
func (n *network) start(ctx context.Context, service int) (time.Duration, error) {
	if n.proxy != nil {
		n.proxy.Kill()
		if out, err := n.Nodes[0].Output(n.b.program, "proxy", "--cleanup"); err != nil {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
	}
	began := time.Now()
	var err error
	if n.proxy, err = n.api.StartProxy(n.b.program, 1); err != nil {
		return 0, err
	}
	const often, try = time.Millisecond, 20 * time.Millisecond
	for {
		if _, err := n.Nodes[0].Ask("tcp", netip.AddrPortFrom(clusterIP(service), 80), try); err == nil {
			return time.Since(began), nil
		}
		select {
		case <-n.proxy.Done():
			return 0, fmt.Errorf("the proxy ended: %w\n%s", n.proxy.Err(), n.proxy.Said())
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(often):
		}
	}
}

// A path is a way for the client to a pod.
type path struct {
	name string
	at   netip.AddrPort
}

// paths compares the proxy with its floors.
func (n *network) paths() error {
	ours, theirs := n.Nodes[0].IP[0], n.Nodes[1].IP[0]
	direct := path{"direct", netip.AddrPortFrom(n.Nodes[1].Pods[0].IP[0], podPort)}
	hand := path{"one DNAT rule made by hand", netip.AddrPortFrom(theirs, handPort)}
	kernel := path{"kernel mode", netip.AddrPortFrom(ours, kernelPort)}
	bare := path{"bare forwarder", netip.AddrPortFrom(theirs, barePort)}
	relayed := path{"userspace mode", netip.AddrPortFrom(ours, relayedPort)}
	// A turn of the kernel's differs from the next by several times what is looked for, so it has many short ones. That of
	// one stream depends on where client, server and what the kernel does between them run, by a third. So it is compared
	// where they all run on one processor, and what differs is the work.
	for _, m := range []struct {
		what         string
		rate         func(at netip.AddrPort, share int) (float64, error)
		unit         string
		turns, share int
	}{
		{oneStream, func(at netip.AddrPort, share int) (float64, error) { return n.throughput(at, 1, 1<<30/int64(share)) }, "Gbit/s", 161, 8},
		{"throughput, 64 streams", func(at netip.AddrPort, share int) (float64, error) { return n.throughput(at, 64, 16<<20/int64(share)) }, "Gbit/s", 41, 1},
		{"connections/s", func(at netip.AddrPort, share int) (float64, error) { return n.connections(at, 2000/share) }, "/s", 161, 4},
	} {
		pair := func() ([][]float64, error) {
			return inTurns([]path{hand, kernel}, m.turns, func(at netip.AddrPort) (float64, error) { return m.rate(at, m.share) })
		}
		beside, goal := ", beside one DNAT rule", ">= 0.97"
		short, err := pair()
		if err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
		if m.what == oneStream {
			n.b.rates("services, kernel: "+m.what+beside, short[1], short[0], m.unit, "reported")
			if short, err = onOneProcessor(pair); err != nil {
				return fmt.Errorf("%s: %w", m.what, err)
			}
			beside += ", one processor"
		}
		n.b.rates("services, kernel: "+m.what+beside, short[1], short[0], m.unit, goal)
		const turns = 9
		long, err := inTurns([]path{direct, bare, relayed}, turns, func(at netip.AddrPort) (float64, error) { return m.rate(at, 1) })
		if err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
		n.b.rates("services, userspace: "+m.what+", beside a bare forwarder", long[2], long[1], m.unit, ">= 0.85")
		n.b.rates("services, userspace: "+m.what+", beside direct", long[2], long[0], m.unit, "reported")
	}
	all := []path{direct, kernel, bare, relayed}
	times, err := inTurns(all, 5, func(at netip.AddrPort) (float64, error) {
		d, err := n.roundTrip(at, 2000)
		return float64(d), err
	})
	if err != nil {
		return err
	}
	us := func(f float64) string { return fmt.Sprintf("%.1f µs", f/1e3) }
	for i := 1; i < len(all); i++ {
		took, floor := median(times[i]), median(times[0])
		n.b.row("services, "+all[i].name+": a question on a connection, p50, beside direct", us(took), us(floor), fmt.Sprintf("%.2f", took/floor), "reported")
	}
	return nil
}

const oneStream = "throughput, 1 stream"

// onOneProcessor calls f while all threads of this process, in which clients and servers are, share a processor, and with
// them what the kernel does for them.
func onOneProcessor(f func() ([][]float64, error)) (_ [][]float64, err error) {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	for i := 0; one.Count() == 0; i++ {
		if all.IsSet(i) {
			one.Set(i)
		}
	}
	move := func(to *unix.CPUSet) error {
		threads, err := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name())
			if merr := unix.SchedSetaffinity(id, to); !errors.Is(merr, unix.ESRCH) {
				err = errors.Join(err, merr)
			}
		}
		return err
	}
	if err := move(&one); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, move(&all)) }()
	return f()
}

// rates prints medians of both, and the median of the ratios of each turn.
func (b *bench) rates(what string, measured, floor []float64, unit, goal string) {
	beside := make([]float64, len(measured))
	for i := range measured {
		beside[i] = measured[i] / floor[i]
	}
	b.row(what, fmt.Sprintf("%.4g %s", median(measured), unit), fmt.Sprintf("%.4g %s", median(floor), unit), fmt.Sprintf("%.3f", median(beside)), goal)
}

// inTurns measures all paths again and again, in turns, so that a slow moment slows all, and
// returns what each was in each turn.
func inTurns(all []path, turns int, measure func(netip.AddrPort) (float64, error)) ([][]float64, error) {
	taken := make([][]float64, len(all))
	for turn := range turns + 1 {
		for i := range all {
			which := (i + turn) % len(all)
			m, err := measure(all[which].at)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[which].name, err)
			}
			if turn > 0 { // what is made once is made
				taken[which] = append(taken[which], m)
			}
		}
	}
	return taken, nil
}

const patience = time.Minute

// throughput downloads over so many streams, and returns the rate in Gbit/s.
func (n *network) throughput(at netip.AddrPort, streams int, size int64) (float64, error) {
	var open []net.Conn
	for range streams {
		c, err := n.Client.Dial("tcp", at, patience)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		open = append(open, c)
	}
	var all errgroup.Group
	began := time.Now()
	for _, c := range open {
		all.Go(func() error {
			if _, err := fmt.Fprintf(c, "get %d\n", size); err != nil {
				return err
			}
			_, err := io.CopyN(discard{}, c, size)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return 0, err
	}
	return float64(size) * float64(streams) * 8 / 1e9 / time.Since(began).Seconds(), nil
}

// discard reads in large pieces.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

var pieces = sync.Pool{New: func() any { return new([256 << 10]byte) }}

func (discard) ReadFrom(r io.Reader) (n int64, err error) {
	b := pieces.Get().(*[256 << 10]byte)
	defer pieces.Put(b)
	for {
		m, err := r.Read(b[:])
		n += int64(m)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// connections makes so many connections from a few clients, asks once on each, and returns how
// many that are in a second.
func (n *network) connections(at netip.AddrPort, total int) (float64, error) {
	const clients = 8
	var all errgroup.Group
	began := time.Now()
	for range clients {
		all.Go(func() error {
			return n.Client.Do(func() error {
				for range total / clients {
					c, err := net.DialTimeout("tcp", at.String(), patience)
					if err != nil {
						return err
					}
					_, err = hosts.Who(c)
					_ = c.(*net.TCPConn).SetLinger(0) // or ports run out
					if err = errors.Join(err, c.Close()); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	err := all.Wait()
	return float64(total) / time.Since(began).Seconds(), err
}

// roundTrip returns how long a question takes on a connection, in the median of so many.
func (n *network) roundTrip(at netip.AddrPort, questions int) (time.Duration, error) {
	c, err := n.Client.Dial("tcp", at, patience)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	took := make([]time.Duration, questions)
	for i := range took {
		began := time.Now()
		if _, err := hosts.Who(c); err != nil {
			return 0, err
		}
		took[i] = time.Since(began)
	}
	return median(took), nil
}

const (
	fewServices, someServices = 10, 100
	endpointsPerService       = 5
	// Services of these numbers have one endpoint, so that it can be seen which.
	firstProbe = 2
)

// growth measures what depends on the number of Services, or is not to.
func (n *network) growth(ctx context.Context) error {
	have := firstProbe
	grow := func(to int) error {
		var all errgroup.Group
		const writers = 32
		all.SetLimit(writers)
		for i := have + 1; i <= to; i++ {
			all.Go(func() error { return n.create(ctx, i, endpointsPerService, nil, 0) })
		}
		have = to
		if err := all.Wait(); err != nil {
			return err
		}
		return n.caughtUp(ctx)
	}
	if err := grow(fewServices); err != nil {
		return err
	}
	firstAtFew, err := n.firstPacket()
	if err != nil {
		return err
	}
	if err := grow(someServices); err != nil {
		return err
	}
	changeAtSome, err := n.change(ctx)
	if err != nil {
		return err
	}
	if _, err := n.start(ctx, firstProbe); err != nil { // which has nothing left behind by growing
		return err
	}
	settle := 20 * time.Second // memory is given back when it is quiet
	if err := pause(ctx, settle); err != nil {
		return err
	}
	atSome, err := memory([]int{n.proxy.PID})
	if err != nil {
		return err
	}
	if err := grow(manyServices); err != nil {
		return err
	}
	firstAtMany, err := n.firstPacket()
	if err != nil {
		return err
	}
	changeAtMany, err := n.change(ctx)
	if err != nil {
		return err
	}
	var syncs []time.Duration
	for range 3 {
		d, err := n.start(ctx, firstProbe)
		if err != nil {
			return err
		}
		syncs = append(syncs, d)
	}
	b := n.b
	inKernel, err := n.fullSync(ctx)
	if err != nil {
		return err
	}
	services := fmt.Sprintf("%d services × %d endpoints", manyServices, endpointsPerService)
	b.row("services: start of the proxy until rules stand, "+services, ms(median(syncs)), "", "", "<= 1000 ms")
	b.row("services: of which the kernel's rules", ms(time.Duration(inKernel*float64(time.Second))), "", "", "")
	b.row(fmt.Sprintf("services: one change, from its write to its effect, p50, %d services", someServices), ms(changeAtSome.effect), "", "", "<= 20 ms")
	b.against(fmt.Sprintf("services: the same at %d services, beside that", manyServices), changeAtMany.effect, changeAtSome.effect, "<= 20 ms")
	b.against("services: of which the write into the API server, beside that", changeAtMany.written, changeAtSome.written, "")
	b.against("services: and the kernel's rules, mean, beside that", changeAtMany.rules, changeAtSome.rules, "0.5 to 1.5")
	b.row(fmt.Sprintf("services: first packet, p50, %d services, beside %d", manyServices, fewServices), fmt.Sprintf("%.1f µs", float64(firstAtMany)/1e3),
		fmt.Sprintf("%.1f µs", float64(firstAtFew)/1e3), fmt.Sprintf("%.2f", float64(firstAtMany)/float64(firstAtFew)), "<= 1.2")
	if err := pause(ctx, settle); err != nil {
		return err
	}
	atMany, err := memory([]int{n.proxy.PID})
	if err != nil {
		return err
	}
	ticks, _, err := usage([]int{n.proxy.PID})
	if err != nil {
		return err
	}
	window := 30 * time.Second
	if err := pause(ctx, window); err != nil {
		return err
	}
	later, _, err := usage([]int{n.proxy.PID})
	if err != nil {
		return err
	}
	const mib = 1 << 20
	b.row("services: memory of the proxy (PSS), "+services, fmt.Sprintf("%.1f MiB", float64(atMany)/mib), fmt.Sprintf("%.1f MiB", float64(atSome)/mib), "",
		fmt.Sprintf("beside %d services", someServices))
	b.row("services: memory per endpoint", fmt.Sprintf("%d B", (atMany-atSome)/((manyServices-someServices)*endpointsPerService)), "", "", "<= 1024 B")
	b.row("services: CPU while nothing changes", fmt.Sprintf("%.2f %% of a core", 100*float64(later-ticks)/ticksPerSecond/window.Seconds()), "0", "", "0")
	return nil
}

// fullSync returns how many seconds the proxy took to install all rules, which it logs a moment later.
func (n *network) fullSync(ctx context.Context) (seconds float64, err error) {
	for seconds == 0 && err == nil {
		if seconds, err = n.metric("kubeproxy_sync_full_proxy_rules_duration_seconds_sum"); err == nil && seconds == 0 {
			err = pause(ctx, 10*time.Millisecond)
		}
	}
	return seconds, err
}

// caughtUp blocks until the last Service is there: changes come in their order.
func (n *network) caughtUp(ctx context.Context) error {
	list, err := n.cs.CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	mark := 20000 + len(list.Items)
	if err := n.create(ctx, mark, 1, nil, 0); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, err := n.Nodes[0].Ask("tcp", netip.AddrPortFrom(clusterIP(mark), 80), 100*time.Millisecond); err == nil {
			return nil
		}
	}
	return ctx.Err()
}

// firstPacket returns how long a connection to a Service takes to be made, in the median.
func (n *network) firstPacket() (time.Duration, error) {
	const connections = 3000
	var took []time.Duration
	err := n.Nodes[0].Pods[1].Do(func() error {
		for range connections {
			began := time.Now()
			c, err := net.DialTimeout("tcp", netip.AddrPortFrom(clusterIP(firstProbe-1), 80).String(), patience)
			if err != nil {
				return err
			}
			took = append(took, time.Since(began))
			_ = c.(*net.TCPConn).SetLinger(0)
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return median(took), nil
}

// A changed is how long a change takes, in the median: until the other of two endpoints answers, from when
// that is written; until the API server has it; and the proxy with the kernel's rules, in the mean.
type changed struct{ effect, written, rules time.Duration }

const partialSync = "kubeproxy_sync_partial_proxy_rules_duration_seconds"

// change measures changes of a Service.
func (n *network) change(ctx context.Context) (c changed, err error) {
	sum, count, err := n.partial()
	if err != nil {
		return c, err
	}
	const changes = 60
	pods := n.Nodes[0].Pods
	at := netip.AddrPortFrom(clusterIP(firstProbe-1), 80)
	var took, wrote []time.Duration
	for i := range changes {
		want := pods[(i+1)%2]
		s := n.slice(firstProbe-1, 1, want)
		began := time.Now()
		if _, err := n.cs.DiscoveryV1().EndpointSlices("default").Update(ctx, s, metav1.UpdateOptions{}); err != nil {
			return c, err
		}
		wrote = append(wrote, time.Since(began))
		for {
			got, err := n.Nodes[0].Ask("tcp", at, patience)
			if err != nil {
				return c, err
			}
			if got.Server == want.Name {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	sumAfter, countAfter, err := n.partial()
	if countAfter > count {
		c.rules = time.Duration((sumAfter - sum) / (countAfter - count) * float64(time.Second))
	}
	c.effect, c.written = median(took), median(wrote)
	return c, err
}

// partial returns how long and how often the proxy has changed the kernel's rules.
func (n *network) partial() (sum, count float64, err error) {
	if sum, err = n.metric(partialSync + "_sum"); err != nil {
		return 0, 0, err
	}
	count, err = n.metric(partialSync + "_count")
	return sum, count, err
}

// metric returns the value of one of the proxy's metrics.
func (n *network) metric(name string) (float64, error) {
	c, err := n.Nodes[0].Dial("tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), hosts.MetricsPort), patience)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		return 0, err
	}
	all, err := io.ReadAll(c)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(all) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			var f float64
			_, err := fmt.Sscan(string(rest), &f)
			return f, err
		}
	}
	return 0, nil // it has none of that name
}
