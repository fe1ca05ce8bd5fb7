package test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/test/hosts"
)

// TestWhatRelayedServicesMayAskFor tries the annotations that userspace mode has.
func TestWhatRelayedServicesMayAskFor(t *testing.T) {
	w := newServicesWorld(t)
	w.withStandIn()
	annotated := func(number int, annotations map[string]string, pods ...string) *service {
		svc := &service{name: fmt.Sprintf("asks-%d", number), number: number, userspace: true, nodePort: true, members: members(pods...)}
		o := svc.object(w.World, 2)
		delete(o.Annotations, "sampan.dev/proxy-mode") // what is asked for needs it
		maps.Copy(o.Annotations, annotations)
		w.post(o)
		for f := range 2 {
			slice := svc.slice(w.World, f)
			if annotations["sampan.dev/proxy-protocol"] != "" {
				slice.Ports[0].Port = new(int32(rawPort))
			}
			w.postSlice(slice)
		}
		return svc
	}
	keeps := annotated(1, map[string]string{"sampan.dev/keep-client-address": "true"}, "pod1a")
	few := annotated(2, map[string]string{"sampan.dev/max-connections": "2"}, "pod1a")
	one := annotated(3, map[string]string{"sampan.dev/proxy-protocol": "v1"}, "pod1b")
	two := annotated(4, map[string]string{"sampan.dev/proxy-protocol": "v2"}, "pod1b")
	w.startProxies()
	w.caughtUp()

	for f := range 2 {
		at := netip.AddrPortFrom(w.Nodes[0].IP[f], keeps.nodePorts())
		for _, from := range []*hosts.Host{w.Client, w.Far, w.Nodes[1].Pods[0], w.Nodes[0].Pods[2], w.Nodes[0].Pods[0]} {
			for _, network := range []string{"tcp", "udp"} {
				got, err := from.Ask(network, at, patient)
				// Pods of one node answer each other past the node, and so see that.
				if near := nodeOf(from.Name) == 1; err != nil || !near && got.Client != from.IP[f] || near && !isOf(w.World, 1, f, got.Client) {
					w.wrong(1, "a Service that keeps the client's address: %s asks over %s: %v, %v, want that %s is seen or, from the same node, that", from.Name, network, got, err, from.IP[f])
				}
			}
		}
	}

	at := netip.AddrPortFrom(few.clusterIP(0), servicePort)
	from := w.Nodes[0].Pods[2]
	var open []net.Conn
	for range 2 {
		c, err := from.Dial("tcp", at, patient)
		if err == nil {
			_, err = hosts.Who(c)
		}
		if err != nil {
			t.Fatalf("one of two connections that may be: %v", err)
		}
		defer c.Close()
		open = append(open, c)
	}
	if got, err := from.Ask("tcp", at, patient); !errors.Is(err, hosts.ErrRefused) {
		w.wrong(1, "the third of two connections that may be: %v, %v", got, err)
	}
	_ = open[0].Close()
	deadline := time.Now().Add(patient)
	for {
		_, err := from.Ask("tcp", at, patient)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			w.wrong(1, "a connection after another one has ended: %v", err)
			break
		}
		<-time.After(10 * time.Millisecond)
	}

	heads := make(chan string, 1)
	l, err := podOf(w.World, "pod1b").Listen(netip.AddrPortFrom(netip.Addr{}, rawPort))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serveHeads(l, heads)
	for f := range 2 {
		for _, svc := range []*service{one, two} {
			for _, d := range svc.frontends(f, w.Nodes[:1]) {
				from := w.Nodes[0].Pods[2]
				c, err := from.Dial("tcp", d.at, patient)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write([]byte("end\n"))
				var got string
				select {
				case got = <-heads:
				case <-time.After(patient):
				}
				_ = c.Close()
				want := headerOf(svc == two, f, c.LocalAddr().(*net.TCPAddr).AddrPort(), d.at)
				if got != want {
					w.wrong(1, "%s, %s: the endpoint was sent\n%q, want\n%q", svc.name, d.kind, got, want)
				}
			}
		}
	}
}

const rawPort = 7070

// serveHeads hands over what comes before the line "end".
func serveHeads(l *net.TCPListener, heads chan<- string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		var all strings.Builder
		for r := bufio.NewReader(c); !strings.HasSuffix(all.String(), "end\n"); {
			b, err := r.ReadByte()
			if err != nil {
				break
			}
			all.WriteByte(b)
		}
		_ = c.Close()
		heads <- strings.TrimSuffix(all.String(), "end\n")
	}
}

// headerOf is the header of the PROXY protocol.
func headerOf(second bool, f int, from, to netip.AddrPort) string {
	if !second {
		return fmt.Sprintf("PROXY TCP%d %s %s %d %d\r\n", []int{4, 6}[f], from.Addr(), to.Addr(), from.Port(), to.Port())
	}
	signature, _ := hex.DecodeString("0d0a0d0a000d0a515549540a")
	both := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	b := append(signature, 0x21, []byte{0x11, 0x21}[f], 0, byte(len(both)+4))
	b = append(b, both...)
	return string(append(b, byte(from.Port()>>8), byte(from.Port()), byte(to.Port()>>8), byte(to.Port())))
}
