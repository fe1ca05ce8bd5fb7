package nft_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

// manyRules are those of services with some backends each, of which the first one
// has a server.
func manyRules(services, backends int, server netip.AddrPort) []proxy.Rule {
	all := make([]proxy.Rule, services)
	for i := range all {
		r := &all[i]
		r.Frontend = proxy.Frontend{Address: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), Protocol: corev1.ProtocolTCP, Port: port}
		r.Masquerade = proxy.MasqueradeForeign
		for j := range backends {
			n := i*backends + j
			r.Backends = append(r.Backends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 64 + byte(n>>16), byte(n >> 8), byte(n)}), target))
		}
	}
	if server.IsValid() {
		all[services/2].Backends = []netip.AddrPort{server}
	}
	return all
}

// BenchmarkFullSync makes the rules of 10,000 services with 5 endpoints each, over those
// that are there already.
func BenchmarkFullSync(b *testing.B) {
	w := newWorld(b)
	n, k := w.nodes[0], w.kernel(0)
	all := manyRules(10_000, 5, netip.AddrPort{})
	n.do(func() { w.must(k.Replace(b.Context(), all)) })
	b.ReportAllocs()
	n.do(func() {
		for b.Loop() {
			w.must(k.Replace(b.Context(), all))
		}
	})
}

// BenchmarkOneChange replaces one endpoint of one service where there are 100, and where
// there are 10,000: it is to cost the same.
func BenchmarkOneChange(b *testing.B) {
	w := newWorld(b)
	var took [2]time.Duration
	var turns [2]func()
	for i, services := range []int{100, 10_000} {
		n, k := w.nodes[i], w.kernel(i)
		all := manyRules(services, 5, netip.AddrPort{})
		n.do(func() { w.must(k.Replace(b.Context(), all)) })
		was := all[services/2]
		turns[i] = func() {
			for j := range 20 {
				is := was
				is.Backends = append([]netip.AddrPort(nil), all[services/2].Backends[:4+j%2]...)
				is.Backends[0] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 63, 0, byte(j)}), target)
				start := time.Now()
				w.must(k.Update(b.Context(), []proxy.Change{{Was: was, Is: is}}))
				took[i] += time.Since(start)
				was = is
			}
		}
	}
	rounds := 0
	for b.Loop() {
		rounds++
		for i := range turns {
			w.nodes[i].do(turns[i])
		}
	}
	for i, name := range []string{"ms/change@100", "ms/change@10000"} {
		b.ReportMetric(float64(took[i].Microseconds())/1000/float64(20*rounds), name)
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "x/100x-services")
}

// BenchmarkFirstPacket measures what a client waits for the first answer over UDP, where
// there are 10 services and where there are 10,000.
func BenchmarkFirstPacket(b *testing.B) {
	w := newWorld(b)
	var took [2][]time.Duration
	frontends := [2]netip.AddrPort{}
	for i, services := range []int{10, 10_000} {
		n, k := w.nodes[i], w.kernel(i)
		n.pods[0].serve(corev1.ProtocolUDP, target)
		all := manyRules(services, 5, netip.AddrPortFrom(n.pods[0].ip[false], target))
		for j := range all {
			all[j].Protocol = corev1.ProtocolUDP
		}
		n.do(func() { w.must(k.Replace(b.Context(), all)) })
		frontends[i] = netip.AddrPortFrom(all[services/2].Address, port)
	}
	for b.Loop() {
		for i := range frontends {
			w.nodes[i].pods[1].do(func() {
				for range 200 {
					c, err := net.Dial("udp", frontends[i].String())
					w.must(err)
					start := time.Now()
					_, err = talk(c)
					took[i] = append(took[i], time.Since(start))
					w.must(err)
					c.Close()
				}
			})
		}
	}
	small, large := median(took[0]), median(took[1])
	b.ReportMetric(float64(small.Nanoseconds())/1000, "us@10")
	b.ReportMetric(float64(large.Nanoseconds())/1000, "us@10000")
	b.ReportMetric(float64(large)/float64(small), "x/1000x-services")
}

// handMade is a table with one rule, as one would write it by hand.
func (w *world) handMade(n *node, frontend, server netip.AddrPort) {
	n.do(func() {
		c, err := nftables.New()
		w.must(err)
		t := c.AddTable(&nftables.Table{Name: "hand", Family: nftables.TableFamilyIPv4})
		ch := c.AddChain(&nftables.Chain{
			Name: "prerouting", Table: t, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
		})
		dport := []byte{byte(frontend.Port() >> 8), byte(frontend.Port())}
		to := []byte{byte(server.Port() >> 8), byte(server.Port())}
		c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: frontend.Addr().AsSlice()},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: dport},
			&expr.Immediate{Register: 1, Data: server.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: to},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
		}})
		w.must(c.Flush())
	})
}

// sides are two nodes with a server each: one with our rules for 10,000 services, the other
// one with a single rule made by hand. Client and server are pods of the node.
func (w *world) sides() (ours, hand *node, frontend netip.AddrPort) {
	ours, hand = w.nodes[0], w.nodes[1]
	k := w.kernel(0)
	all := manyRules(10_000, 5, netip.AddrPortFrom(ours.pods[0].ip[false], target))
	frontend = netip.AddrPortFrom(all[5_000].Address, port)
	ours.do(func() { w.must(k.Replace(w.t.Context(), all)) })
	w.handMade(hand, frontend, netip.AddrPortFrom(hand.pods[0].ip[false], target))
	return ours, hand, frontend
}

// BenchmarkConnections compares connections that are made and closed one after the other.
func BenchmarkConnections(b *testing.B) {
	w := newWorld(b)
	ours, hand, frontend := w.sides()
	var took [2][]time.Duration
	for _, n := range []*node{ours, hand} {
		n.pods[0].do(func() {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", target))
			w.must(err)
			b.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 1))
					c.Close()
				}
			}()
		})
	}
	rounds := 0
	for b.Loop() {
		for i, n := range order(rounds, ours, hand) {
			i := (i + rounds) % 2
			n.pods[1].do(func() {
				start := time.Now()
				c, err := net.Dial("tcp", frontend.String())
				w.must(err)
				_ = c.(*net.TCPConn).SetLinger(0) // so that ports are not used up
				c.Close()
				took[i] = append(took[i], time.Since(start))
			})
		}
		rounds++
	}
	mine, theirs := median(took[0]), median(took[1])
	b.ReportMetric(1/mine.Seconds(), "conn/s")
	b.ReportMetric(float64(theirs)/float64(mine), "x/hand-made")
}

// order is two nodes, now the one first and now the other one.
func order(round int, a, b *node) []*node {
	if round%2 == 1 {
		return []*node{b, a}
	}
	return []*node{a, b}
}

// BenchmarkThroughput compares one stream of bytes.
func BenchmarkThroughput(b *testing.B) {
	w := newWorld(b)
	ours, hand, frontend := w.sides()
	const size = 32 << 20
	var took [2][]time.Duration
	var conns [2]net.Conn
	for i, n := range []*node{ours, hand} {
		n.pods[0].do(func() {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", target))
			w.must(err)
			b.Cleanup(func() { l.Close() })
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				for {
					if _, err := io.CopyN(io.Discard, c, size); err != nil {
						return
					}
					if _, err := c.Write([]byte{1}); err != nil {
						return
					}
				}
			}()
		})
		c, err := n.pods[1].dial(corev1.ProtocolTCP, frontend)
		w.must(err)
		defer c.Close()
		conns[i] = c
	}
	chunk := make([]byte, 256<<10)
	rounds := 0
	for b.Loop() {
		for i := range conns {
			i := (i + rounds) % 2
			start := time.Now()
			for range size / len(chunk) {
				_, err := conns[i].Write(chunk)
				w.must(err)
			}
			_, err := conns[i].Read(make([]byte, 1))
			w.must(err)
			took[i] = append(took[i], time.Since(start))
		}
		rounds++
	}
	mine, theirs := median(took[0]), median(took[1])
	b.ReportMetric(size/mine.Seconds()/1e9, "GB/s")
	b.ReportMetric(float64(theirs)/float64(mine), "x/hand-made")
}

// BenchmarkMemory measures the memory of an endpoint, in the kernel (the growth of its slabs and
// vmalloc areas, on the whole machine) and in this process. The caller's rules are not counted.
func BenchmarkMemory(b *testing.B) {
	w := newWorld(b)
	n := w.nodes[0]
	const services, each = 20_000, 5
	all := manyRules(services, each, netip.AddrPort{})
	var kernel, process []time.Duration
	for b.Loop() {
		k := w.kernel(0)
		n.do(func() { w.must(k.Replace(b.Context(), all[:1])) })
		beforeKernel, beforeProcess := kernelMemory(b), processMemory()
		n.do(func() { w.must(k.Replace(b.Context(), all)) })
		process = append(process, time.Duration(processMemory()-beforeProcess))
		kernel = append(kernel, time.Duration(kernelMemory(b)-beforeKernel))
		runtime.KeepAlive(k)
		n.do(func() { w.must(k.Close()) })
	}
	b.ReportMetric(float64(median(kernel))/services/each, "kernel-B/endpoint")
	b.ReportMetric(float64(median(process))/services/each, "process-B/endpoint")
}

func kernelMemory(b *testing.B) (bytes int64) {
	time.Sleep(300 * time.Millisecond) // the kernel frees what was in its way, and grows its tables, in the background
	f, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(f)) {
		var name string
		var kb int64
		if _, err := fmt.Sscan(line, &name, &kb); err == nil && (name == "Slab:" || name == "VmallocUsed:") {
			bytes += kb << 10
		}
	}
	return bytes
}

func processMemory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
