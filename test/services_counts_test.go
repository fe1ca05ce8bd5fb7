package test

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/test/hosts"
)

// A sent is what was sent to a port of a Service, and came back.
type sent struct {
	connections, in, out uint64 // bytes of UDP with their headers, of TCP without
	refused              uint64
}

// TestWhatCameToServicesIsCounted sends requests to Services of either mode, at every kind of address, from pods, the
// node and outside, while endpoints and modes change, and then compares the metrics with the connections that were made
// and the bytes that were sent.
func TestWhatCameToServicesIsCounted(t *testing.T) {
	w := newServicesWorld(t)
	w.withStandIn()
	var all []*service
	for i, userspace := range []bool{false, true} {
		mode := map[bool]string{false: "kernel", true: "userspace"}[userspace]
		all = append(all,
			&service{name: "counted-" + mode, nodePort: true, external: true, balanced: true, members: members("pod1a", "pod2a"), number: 10*i + 1, userspace: userspace},
			&service{name: "local-" + mode, nodePort: true, externalLocal: true, members: members("pod1a", "pod2a"), number: 10*i + 2, userspace: userspace},
			&service{name: "sticky-" + mode, sticky: true, members: members("pod1a", "pod2a"), number: 10*i + 3, userspace: userspace},
			&service{name: "empty-" + mode, nodePort: true, number: 10*i + 4, userspace: userspace},
			&service{name: "unused-" + mode, nodePort: true, members: members("pod1a"), number: 10*i + 5, userspace: userspace},
		)
	}
	ranged := &service{name: "ranged", nodePort: true, balanced: true, onlyClient: true, members: members("pod1a"), number: 30}
	for _, svc := range append(all, ranged) {
		w.create(svc)
	}
	w.startProxy(0)
	w.caughtUp()

	want := map[string]*sent{}
	round := func() {
		t.Helper()
		for _, svc := range all {
			if strings.HasPrefix(svc.name, "unused-") {
				continue
			}
			for _, network := range []string{"tcp", "udp"} {
				key := svc.name + " " + strings.ToUpper(network)
				if want[key] == nil {
					want[key] = &sent{}
				}
				for f := range w.families {
					for _, d := range svc.frontends(f, w.Nodes[:1]) {
						for _, from := range []*hosts.Host{w.Nodes[0].Pods[0], w.Nodes[0].Pods[2], w.Nodes[0].Host, w.Client} {
							want[key].ask(w, svc, from, d, network)
						}
					}
				}
			}
		}
	}
	check := func(when string) {
		t.Helper()
		got := w.counted()
		for key, s := range want {
			name := strings.Replace(key, " ", ",", 1)
			is := func(metric, more string) uint64 { return got[metric+","+name+","+more] }
			if n := is("connections_total", ""); n != s.connections {
				w.wrong(1, "%s, %s: %d connections are counted, want %d", key, when, n, s.connections)
			}
			if n := is("connections_refused_total", "no-endpoints"); n != s.refused {
				w.wrong(1, "%s, %s: %d refusals are counted, want %d", key, when, n, s.refused)
			}
			for direction, bytes := range map[string]uint64{"in": s.in, "out": s.out} {
				n := is("bytes_total", direction)
				const packets, header = 10, 40 + 60 // of TCP: how many there are at most is not known to us
				if strings.HasSuffix(key, "UDP") && n != bytes || n < bytes || n > bytes+s.connections*packets*header {
					w.wrong(1, "%s, %s: %d bytes %s are counted, want %d and of TCP headers", key, when, n, direction, bytes)
				}
			}
		}
		for key := range got {
			if strings.Contains(key, ",unused-") && !strings.HasPrefix(key, "relayed_") && !strings.HasPrefix(key, "dial_") && got[key] != 0 {
				w.wrong(1, "%s: %s is %d, and nobody asked", when, key, got[key])
			}
		}
	}
	round()
	check("at first")

	for _, svc := range all {
		if len(svc.members) > 1 {
			svc.members = members("pod1b")
			if err := w.change(svc); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.caughtUp()
	round()
	check("with other endpoints")

	for _, svc := range all {
		svc.userspace = !svc.userspace
		o, err := w.cs.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), svc.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Annotations = svc.object(w.World, w.families).Annotations
		if _, err := w.cs.CoreV1().Services(metav1.NamespaceDefault).Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.caughtUp()
	round()
	check("in the other mode")

	for f := range w.families {
		at := netip.AddrPortFrom(ranged.outerIP(f), servicePort)
		if got, err := w.Nodes[0].Pods[0].Ask("udp", at, silence); !errors.Is(err, hosts.ErrSilent) {
			w.wrong(1, "ranged: a client that is not let in: %v, %v", got, err)
		}
	}
	got := w.counted()
	if n, key := got["connections_refused_total,ranged,UDP,source"], uint64(w.families); n != key {
		w.wrong(1, "ranged: %d that may not connect are counted, want %d", n, key)
	}

	for _, svc := range all {
		if err := w.cs.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), svc.name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var left string
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		left = ""
		for key := range w.counted() {
			if !strings.Contains(key, ",ranged,") && !strings.Contains(key, ",mark-") {
				left = key
			}
		}
		if left == "" {
			return
		}
	}
	w.wrong(1, "there is still %s of a Service that is gone", left)
}

// ask asks once and notes what that is in bytes.
func (s *sent) ask(w *servicesWorld, svc *service, from *hosts.Host, d frontend, network string) {
	got, err := from.Ask(network, d.at, patient)
	if len(svc.members) == 0 {
		if s.refused++; !errors.Is(err, hosts.ErrRefused) {
			w.wrong(1, "%s: %s asks %s over %s: %v, %v, want that it is refused", svc.name, from.Name, d.at, network, got, err)
		}
		return
	}
	if err != nil {
		w.wrong(1, "%s: %s asks %s over %s: %v", svc.name, from.Name, d.at, network, err)
		return
	}
	header := uint64(0)
	if network == "udp" {
		header = 20 + 8
		if d.at.Addr().Is6() {
			header = 40 + 8
		}
	}
	s.connections++
	s.in += header + uint64(len("who\n"))
	s.out += header + uint64(len(got.Server)+len(" ")+len(got.Client.String())+len("\n"))
}

var countedLine = regexp.MustCompile(`(?m)^sampan_proxy_([a-z_]+)\{(?:direction="(\w+)",)?namespace="default",port="[^"]*",protocol="(\w+)",(?:reason="([\w-]+)",)?service="([^"]+)"\} (\S+)$`)

// counted reads the Service metrics of node 1's proxy: by metric, Service, protocol, and direction or reason.
func (s *servicesWorld) counted() map[string]uint64 {
	s.t.Helper()
	_, body, err := s.get(s.Nodes[0].Host, netip.AddrPortFrom(loopback, hosts.MetricsPort), "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, m := range countedLine.FindAllStringSubmatch(body, -1) {
		n, err := strconv.ParseFloat(m[6], 64)
		key := fmt.Sprintf("%s,%s,%s,%s", m[1], m[5], m[3], m[2]+m[4])
		if _, twice := all[key]; twice || err != nil {
			s.t.Errorf("%s: twice, or no number: %v", m[0], err)
		}
		all[key] = uint64(n)
	}
	return all
}
