package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sampan-io/sampan/test/hosts"
)

// A balanced world is the network of package hosts, an API server in it, and a service
// proxy on each of its nodes.
type servicesWorld struct {
	*hosts.World
	t        *testing.T
	families int // that cluster IPs may have
	api      *hosts.API
	cs       *kubernetes.Clientset
	servers  map[string]*hosts.Server // by the name of the pod
	proxies  []*hosts.Process         // by node

	mu     sync.Mutex
	failed map[int]bool // guarded by mu; nodes where something went wrong
}

const podsPerNode = 3

// newServicesWorld makes the network and a server on every pod.
func newServicesWorld(t *testing.T) *servicesWorld {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	w, err := hosts.New(podsPerNode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	s := &servicesWorld{World: w, t: t, servers: map[string]*hosts.Server{}, failed: map[int]bool{}}
	for _, n := range w.Nodes {
		for _, p := range n.Pods {
			server, err := p.Serve(serverPort)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
			s.servers[p.Name] = server
		}
	}
	t.Cleanup(s.explain)
	return s
}

// explain prints the rules of the nodes where something went wrong, and what the proxies said.
func (s *servicesWorld) explain() {
	if !s.t.Failed() {
		return
	}
	for i, n := range s.Nodes {
		if i < len(s.proxies) && s.proxies[i] != nil {
			s.t.Logf("the proxy of %s said:\n%s", n.Name, s.proxies[i].Said())
		}
		if !s.failed[i+1] {
			continue
		}
		if rules, err := n.Output("nft", "list", "ruleset"); err == nil {
			s.t.Logf("the rules of %s:\n%s", n.Name, rules)
		}
	}
}

// wrong notes that something was not as it should be, and where the rules for it are.
func (s *servicesWorld) wrong(node int, format string, args ...any) {
	s.t.Helper()
	s.mu.Lock()
	s.failed[node] = true
	s.mu.Unlock()
	s.t.Errorf(format, args...)
}

// withStandIn serves the API by a stand-in that knows both families.
func (s *servicesWorld) withStandIn() {
	s.t.Helper()
	l, err := s.Control.Listen(netip.AddrPortFrom(hosts.ControlAddress(), 8001))
	if err != nil {
		s.t.Fatal(err)
	}
	api := newStandIn(l)
	s.t.Cleanup(api.Close)
	s.families = 2
	a, err := s.Connect(hosts.Plain("http://"+l.Addr().String()), s.t.TempDir())
	if err != nil {
		s.t.Fatal(err)
	}
	s.connect(a)
}

// connect makes the client of the test, and the nodes known.
func (s *servicesWorld) connect(a *hosts.API) {
	s.t.Helper()
	s.api, s.cs = a, clientset(s.t, a.Config)
	s.register()
}

// register makes the nodes known.
func (s *servicesWorld) register() {
	s.t.Helper()
	for i, n := range s.Nodes {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{corev1.LabelTopologyZone: zoneOf(i + 1)}},
			Spec:       corev1.NodeSpec{PodCIDR: hosts.PodNetwork(0, i+1).String(), PodCIDRs: []string{hosts.PodNetwork(0, i+1).String(), hosts.PodNetwork(1, i+1).String()}},
		}
		for f := range 2 {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: n.IP[f].String()})
		}
		made, err := s.cs.CoreV1().Nodes().Create(s.t.Context(), node, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err == nil {
			made.Status, made.ResourceVersion = node.Status, "" // others may have an eye on it
			_, err = s.cs.CoreV1().Nodes().UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{})
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// create makes a Service and its EndpointSlices.
func (s *servicesWorld) create(svc *service) {
	s.t.Helper()
	ctx := s.t.Context()
	services := s.cs.CoreV1().Services(metav1.NamespaceDefault)
	families := s.families
	o, err := services.Create(ctx, svc.object(s.World, families), metav1.CreateOptions{})
	if err == nil && svc.balanced {
		_, err = services.UpdateStatus(ctx, svc.status(o, families), metav1.UpdateOptions{})
	}
	for f := range families {
		if err == nil {
			_, err = s.cs.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, svc.slice(s.World, f), metav1.CreateOptions{})
		}
	}
	if err != nil {
		s.t.Fatalf("%s: %v", svc.name, err)
	}
}

// change gives a Service other members.
func (s *servicesWorld) change(svc *service) error {
	for f := range s.families {
		if _, err := s.cs.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Update(s.t.Context(), svc.slice(s.World, f), metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// startProxy starts the proxy of a node, counted from 0.
func (s *servicesWorld) startProxy(i int, args ...string) *hosts.Process {
	s.t.Helper()
	p, err := s.api.StartProxy(sampanProgram, i+1, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	for len(s.proxies) <= i {
		s.proxies = append(s.proxies, nil)
	}
	s.proxies[i] = p
	s.t.Cleanup(p.Kill)
	return p
}

// startProxies starts those of all nodes.
func (s *servicesWorld) startProxies(args ...string) {
	s.t.Helper()
	for i := range s.Nodes {
		s.startProxy(i, args...)
	}
}

// patient is how long an answer may take on a loaded machine, silence how long nothing has to
// come before it is taken that nothing will.
const (
	patient = 20 * time.Second
	silence = 700 * time.Millisecond
)

// caughtUp blocks until the proxies of all nodes have all that was written before. It says so by
// a Service that is written after: changes of a kind come in their order.
func (s *servicesWorld) caughtUp() {
	s.t.Helper()
	mark := &service{name: fmt.Sprintf("mark-%d", time.Now().UnixNano()), members: members("pod1a"), number: markNumber()}
	s.create(mark)
	deadline := time.Now().Add(time.Minute)
	for i, n := range s.Nodes {
		if i >= len(s.proxies) || s.proxies[i] == nil {
			continue
		}
		for f := range s.families {
			at := netip.AddrPortFrom(mark.clusterIP(f), servicePort)
			for {
				_, err := n.Ask("tcp", at, silence)
				if err == nil {
					break
				}
				select {
				case <-s.proxies[i].Done():
					s.t.Fatalf("the proxy of %s ended: %v\n%s", n.Name, s.proxies[i].Err(), s.proxies[i].Said())
				default:
				}
				if time.Now().After(deadline) {
					s.failed[i+1] = true
					s.t.Fatalf("the proxy of %s has not caught up within a minute: %v", n.Name, err)
				}
				<-time.After(10 * time.Millisecond)
			}
		}
	}
}

var marks struct {
	sync.Mutex
	n int
}

// markNumber returns numbers from 1000 on.
func markNumber() int {
	marks.Lock()
	defer marks.Unlock()
	marks.n++
	return 1000 + marks.n
}

// An asker asks who is there, again and again.
type asker struct {
	from    *hosts.Host
	network string
	at      netip.AddrPort

	kept  bool          // on one connection, or else on new ones
	pause time.Duration // between two questions
}

// An asking is many askers at work.
type asking struct {
	stop    chan struct{}
	done    sync.WaitGroup
	answers atomic.Int64

	mu     sync.Mutex
	faults []string // guarded by mu; the first ones
}

// startLoad lets askers begin.
func (s *servicesWorld) startLoad(askers ...asker) *asking {
	l := &asking{stop: make(chan struct{})}
	for _, a := range askers {
		l.done.Go(func() { l.ask(a) })
	}
	s.t.Cleanup(func() { l.end() })
	return l
}

// end stops the askers and returns what went wrong.
func (l *asking) end() (faults []string) {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.done.Wait()
	return l.faults
}

func (l *asking) fault(a asker, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < 10 {
		l.faults = append(l.faults, fmt.Sprintf("%s: %s asks %s over %s: %v", time.Now().Format("15:04:05.000"), a.from.Name, a.at, a.network, err))
	}
}

// question asks for the name of the server on a connection, and waits for the answer until patience is over.
func question(c net.Conn, patience time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := hosts.Who(c)
	return err
}

func (l *asking) ask(a asker) {
	var c net.Conn
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(a.pause):
		}
		var err error
		if c == nil {
			if c, err = a.from.Dial(a.network, a.at, patient); err != nil {
				l.fault(a, err)
				continue
			}
		}
		if err = question(c, patient); a.network == "udp" && errors.Is(err, hosts.ErrSilent) {
			// The answer to one datagram is lost when the flow to a removed endpoint is deleted
			// before it. A client of UDP asks again.
			err = question(c, patient)
		}
		if err != nil {
			l.fault(a, err)
		} else {
			l.answers.Add(1)
		}
		if err != nil || !a.kept {
			_ = c.Close()
			c = nil
		}
	}
}

// get asks by HTTP, from a host.
func (s *servicesWorld) get(from *hosts.Host, at netip.AddrPort, path string) (code int, body string, err error) {
	c := &http.Client{Timeout: patient, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return from.Dial("tcp", at, patient) },
	}}
	res, err := c.Get("http://" + at.String() + path)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// withSampan serves the API by the program, which has one network for cluster IPs, of IPv4.
func (s *servicesWorld) withSampan() {
	s.t.Helper()
	a, err := s.StartAPI(sampanProgram, s.t.TempDir())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(a.Close)
	s.families = 1
	s.connect(a)
}

// withCluster serves the API by the program with a real node, which is the first one, until the test ends or stop is
// called.
func (s *servicesWorld) withCluster(args ...string) (stop func()) {
	s.t.Helper()
	a, err := s.StartCluster(sampanProgram, s.t.TempDir(), 1, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if a.Process().Stop() != nil {
			s.t.Errorf("stopping the cluster: %v\n%s", a.Process().Err(), a.Process().Said())
		}
	})
	s.t.Cleanup(stop)
	s.api, s.cs = a, clientset(s.t, a.Config)
	return stop
}
