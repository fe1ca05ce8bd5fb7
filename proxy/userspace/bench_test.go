package userspace_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy/userspace"
)

// The benchmarks measure the forwarder beside two others in the same run, in turns, so
// that a slow moment slows all: bare is the shortest forwarder that can be written with
// package net, which splices as well and does nothing else; direct is no forwarder at all.
// Ratios are of rates: 1 is as fast, more is faster.

// bare forwards to one address.
func bare(tb testing.TB, to netip.AddrPort) netip.AddrPort {
	return backend(tb, func(in *net.TCPConn) {
		c, err := net.Dial("tcp4", to.String())
		if err != nil {
			return
		}
		out := c.(*net.TCPConn)
		defer func() { _ = out.Close() }()
		g := run.NewGroup(context.Background(), 0)
		g.Go(func(context.Context) {
			_, _ = io.Copy(out, in)
			_ = out.CloseWrite()
		})
		_, _ = io.Copy(in, out)
		_ = in.CloseWrite()
		g.Wait()
	})
}

// paths are the ways to a backend.
type paths struct {
	direct, bare, ours netip.AddrPort
}

func ways(b *testing.B, serve func(c *net.TCPConn)) paths {
	b.Helper()
	to := backend(b, serve)
	return paths{to, bare(b, to), set(b, start(b, userspace.Options{}), web(corev1.ProtocolTCP, to))}
}

// measure has each way do its work in turn, as often as the benchmark goes on, and returns
// how long each took in the median of its turns.
func (p paths) measure(b *testing.B, work func(at netip.AddrPort)) (direct, bare, ours time.Duration) {
	all := []netip.AddrPort{p.direct, p.bare, p.ours}
	took := make([][]time.Duration, len(all))
	for _, at := range all {
		work(at) // what is made once is made
	}
	for turn := 0; b.Loop(); turn++ {
		for i := range all {
			which := (i + turn) % len(all)
			began := time.Now()
			work(all[which])
			took[which] = append(took[which], time.Since(began))
		}
	}
	median := func(d []time.Duration) time.Duration { slices.Sort(d); return d[len(d)/2] }
	return median(took[0]), median(took[1]), median(took[2])
}

func report(b *testing.B, direct, bare, ours time.Duration) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bare)/float64(ours), "x/bare")
	b.ReportMetric(float64(direct)/float64(ours), "x/direct")
}

func benchmarkThroughput(b *testing.B, streams int) {
	const total = 32 << 20
	p := ways(b, func(c *net.TCPConn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	})
	chunk := make([]byte, 256<<10)
	direct, bare, ours := p.measure(b, func(at netip.AddrPort) {
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
				if err != nil {
					b.Error(err)
					return
				}
				defer func() { _ = c.Close() }()
				for sent := 0; sent < total/streams; sent += len(chunk) {
					if _, err := c.Write(chunk); err != nil {
						b.Error(err)
						return
					}
				}
				_ = c.CloseWrite()
				_, _ = io.Copy(io.Discard, c) // until the server has all of it
			})
		}
		all.Wait()
	})
	report(b, direct, bare, ours)
	b.ReportMetric(float64(total)/ours.Seconds()/(1<<30), "GiB/s")
}

func BenchmarkThroughputOf1Stream(b *testing.B)   { benchmarkThroughput(b, 1) }
func BenchmarkThroughputOf64Streams(b *testing.B) { benchmarkThroughput(b, 64) }

// echo is a backend that says each byte again, until there are no more.
func echo(c *net.TCPConn) {
	var one [1]byte
	for {
		if _, err := c.Read(one[:]); err != nil {
			return
		}
		_, _ = c.Write(one[:])
	}
}

func ping(b *testing.B, c *net.TCPConn) {
	one := [1]byte{'x'}
	if _, err := c.Write(one[:]); err != nil {
		b.Error(err)
	}
	if _, err := io.ReadFull(c, one[:]); err != nil {
		b.Error(err)
	}
}

// BenchmarkConnections makes connections, each for one question and answer, eight at a time.
func BenchmarkConnections(b *testing.B) {
	const clients, each = 8, 25 // many short turns, so that the median is of many
	p := ways(b, echo)
	direct, bare, ours := p.measure(b, func(at netip.AddrPort) {
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range each {
					c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
					if err != nil {
						b.Error(err)
						return
					}
					ping(b, c)
					_ = c.SetLinger(0) // or there are no ports left soon
					_ = c.Close()
				}
			})
		}
		all.Wait()
	})
	report(b, direct, bare, ours)
	b.ReportMetric(clients*each/ours.Seconds(), "conns/s")
}

// BenchmarkLatency asks and waits for the answer, over and over on one connection.
func BenchmarkLatency(b *testing.B) {
	const times = 100
	p := ways(b, echo)
	conns := map[netip.AddrPort]*net.TCPConn{}
	for _, at := range []netip.AddrPort{p.direct, p.bare, p.ours} {
		conns[at] = dial(b, at)
	}
	direct, bare, ours := p.measure(b, func(at netip.AddrPort) {
		for range times {
			ping(b, conns[at])
		}
	})
	report(b, direct, bare, ours)
	b.ReportMetric(float64(ours-direct)/times/1e3, "added-µs")
	b.ReportMetric(float64(bare-direct)/times/1e3, "added-by-bare-µs")
}

// udpServer answers each packet with the packet.
func udpServer(tb testing.TB) netip.AddrPort {
	c := listenPackets(tb)
	packets(tb, func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(buf[:n], from)
		}
	}, c)
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func listenPackets(tb testing.TB) *net.UDPConn {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	_ = c.SetReadBuffer(1 << 20)
	return c
}

// packets runs work until the test ends and closes its socket.
func packets(tb testing.TB, work func(), c *net.UDPConn) {
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(context.Context) { work() })
	tb.Cleanup(func() { _ = c.Close(); g.Stop() })
}

// bareUDP is the shortest forwarder of UDP that can be written with package net: a socket and a goroutine for each
// client. It forgets no flow.
func bareUDP(tb testing.TB, to netip.AddrPort) netip.AddrPort {
	in := listenPackets(tb)
	g := run.NewGroup(context.Background(), 0)
	packets(tb, func() {
		flows := map[netip.AddrPort]*net.UDPConn{}
		buf := make([]byte, 2048)
		for {
			n, from, err := in.ReadFromUDPAddrPort(buf)
			if err != nil {
				break
			}
			out := flows[from]
			if out == nil {
				if out, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to)); err != nil {
					continue
				}
				flows[from] = out
				g.Go(func(context.Context) {
					buf := make([]byte, 2048)
					for {
						n, err := out.Read(buf)
						if err != nil {
							return
						}
						_, _ = in.WriteToUDPAddrPort(buf[:n], from)
					}
				})
			}
			_, _ = out.Write(buf[:n])
		}
		for _, out := range flows {
			_ = out.Close()
		}
		g.Stop()
	}, in)
	return in.LocalAddr().(*net.UDPAddr).AddrPort()
}

// benchmarkUDP has flows that each send a packet and wait for the answer, window packets at a time. A packet that is
// lost is not sent again; a second of silence ends a flow's turn.
func benchmarkUDP(b *testing.B, flows, window int) {
	const total = 8000
	to := udpServer(b)
	p := paths{to, bareUDP(b, to), set(b, start(b, userspace.Options{MaxFlows: 20_000}), web(corev1.ProtocolUDP, to))}
	conns := map[netip.AddrPort][]*net.UDPConn{}
	for _, at := range []netip.AddrPort{p.direct, p.bare, p.ours} {
		for range flows {
			c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
			conns[at] = append(conns[at], c)
		}
	}
	direct, bare, ours := p.measure(b, func(at netip.AddrPort) {
		var all sync.WaitGroup
		for _, c := range conns[at] {
			all.Go(func() {
				text, buf := make([]byte, 64), make([]byte, 100)
				for sent := 0; sent < total/flows; sent += window {
					for range window {
						_, _ = c.Write(text)
					}
					_ = c.SetReadDeadline(time.Now().Add(time.Second))
					for range window {
						if _, err := c.Read(buf); err != nil {
							b.Error(err)
							return
						}
					}
				}
			})
		}
		all.Wait()
	})
	report(b, direct, bare, ours)
	b.ReportMetric(total/ours.Seconds(), "packets/s")
}

func BenchmarkUDPOf1Flow(b *testing.B)    { benchmarkUDP(b, 1, 1) }
func BenchmarkUDPOf1Burst(b *testing.B)   { benchmarkUDP(b, 1, 16) }
func BenchmarkUDPOf64Flows(b *testing.B)  { benchmarkUDP(b, 64, 1) }
func BenchmarkUDPOf200Flows(b *testing.B) { benchmarkUDP(b, 200, 1) }

// BenchmarkUDPMemory reports the memory of a flow that waits, with the stacks of goroutines and without what the kernel
// has.
func BenchmarkUDPMemory(b *testing.B) {
	const flows = 3000
	to := udpServer(b)
	measure := func(at netip.AddrPort) float64 {
		var conns []*net.UDPConn
		for range flows {
			c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
			conns = append(conns, c)
		}
		memory := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC() // twice: the first only moves pooled buffers aside
			runtime.ReadMemStats(&m)
			return m.HeapAlloc + m.StackInuse
		}
		before := memory()
		for _, c := range conns {
			_, _ = c.Write([]byte("x"))
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = c.Read(make([]byte, 1))
		}
		return (float64(memory()) - float64(before)) / flows
	}
	for b.Loop() {
		b.ReportMetric(measure(bareUDP(b, to)), "B/flow-of-bare")
		b.ReportMetric(measure(set(b, start(b, userspace.Options{}), web(corev1.ProtocolUDP, to))), "B/flow")
	}
	b.ReportMetric(0, "ns/op")
}
