package conntrack

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netdump"
	"github.com/sampan-io/sampan/internal/netfilter"
	"github.com/sampan-io/sampan/internal/nstest"
)

// remember makes the kernel remember flows of a family, as if they had been seen.
func remember(t testing.TB, v6 bool, all []flow) {
	t.Helper()
	c, err := openConntrack()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	const timeout, lifetime = 7, 3600 // CTA_TIMEOUT, in seconds
	tuple := func(kind uint16, from, to netip.AddrPort, protocol uint8) {
		m, whole := netfilter.Begin(c.out, kind)
		m, ip := netfilter.Begin(m, ctaTupleIP)
		first := uint16(ctaIPv4Src)
		if v6 {
			first = ctaIPv6Src
		}
		m = netfilter.End(netfilter.AppendAttr(netfilter.AppendAttr(m, first, from.Addr().AsSlice()...), first+1, to.Addr().AsSlice()...), ip)
		m, proto := netfilter.Begin(m, ctaTupleProto)
		m = netfilter.AppendAttr(m, ctaProtoNum, protocol)
		m = netfilter.AppendAttr(m, ctaProtoSrcPort, binary.BigEndian.AppendUint16(nil, from.Port())...)
		m = netfilter.AppendAttr(m, ctaProtoDstPort, binary.BigEndian.AppendUint16(nil, to.Port())...)
		c.out = netfilter.End(netfilter.End(m, proto), whole)
	}
	for some := range slices.Chunk(all, 100) {
		c.out = c.out[:0]
		for i, f := range some {
			flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_EXCL)
			if i == len(some)-1 {
				flags |= unix.NLM_F_ACK
			}
			at := c.message(ctNew, flags, v6)
			tuple(ctaTupleOrig, f.client, f.to, f.protocol)
			tuple(ctaTupleReply, f.server, f.client, f.protocol)
			c.out = netfilter.AppendAttr(c.out, timeout, binary.BigEndian.AppendUint32(nil, lifetime)...)
			if f.protocol == unix.IPPROTO_TCP {
				m, info := netfilter.Begin(c.out, ctaProtoinfo)
				m, tcp := netfilter.Begin(m, ctaProtoinfoTCP)
				c.out = netfilter.End(netfilter.End(netfilter.AppendAttr(m, ctaTCPState, f.state), tcp), info)
			}
			c.sized(at)
		}
		if err := c.send(); err != nil {
			t.Fatal(err)
		}
		// Only what is wrong is answered, and the last one.
		if b, err := c.receive(); err != nil {
			t.Fatal(err)
		} else if _, m, _, ok := netfilter.Split(b); !ok || result(m) != nil {
			t.Fatalf("a flow is refused: %v", result(m))
		}
	}
}

// someFlows makes up flows of a family.
func someFlows(v6 bool, n int) []flow {
	address := func(last byte) netip.Addr {
		if v6 {
			return netip.AddrFrom16([16]byte{0xfd, 15: last})
		}
		return netip.AddrFrom4([4]byte{10, 0, 0, last})
	}
	all := make([]flow, n)
	for i := range all {
		f := &all[i]
		f.protocol = []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP}[rand.IntN(2)]
		f.client = netip.AddrPortFrom(address(1), uint16(1024+i)) // no two are the same
		f.to = netip.AddrPortFrom(address(byte(2+rand.IntN(3))), []uint16{80, 443}[rand.IntN(2)])
		f.server = netip.AddrPortFrom(address(byte(10+rand.IntN(3))), []uint16{8080, 8443}[rand.IntN(2)])
		if f.protocol == unix.IPPROTO_TCP {
			f.state = uint8(1 + rand.IntN(8))
		}
	}
	return all
}

func (f *flow) String() string {
	return fmt.Sprint(f.protocol, f.client, f.to, f.server, f.state, f.sent, f.answered)
}

// read returns what is read for a selection, each once.
func read(t testing.TB, s selection) map[string]flowKey {
	t.Helper()
	c, err := openConntrack()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	all := map[string]flowKey{}
	if err := c.each(s, func(f *flow) { all[f.String()] = f.key.clone() }); err != nil {
		t.Fatal(err)
	}
	return all
}

// inLibrary is the same by other people's code.
func inLibrary(t testing.TB, v6 bool) map[string]bool {
	t.Helper()
	family := netlink.InetFamily(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	list, err := netdump.Whole(func() ([]*netlink.ConntrackFlow, error) {
		return netlink.ConntrackTableList(netlink.ConntrackTable, family)
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, l := range list {
		f := fromLibrary(l)
		all[f.String()] = true
	}
	return all
}

func fromLibrary(l *netlink.ConntrackFlow) flow {
	at := func(ip net.IP, port uint16) netip.AddrPort {
		a, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(a.Unmap(), port)
	}
	f := flow{
		protocol: l.Forward.Protocol,
		client:   at(l.Forward.SrcIP, l.Forward.SrcPort), to: at(l.Forward.DstIP, l.Forward.DstPort), server: at(l.Reverse.SrcIP, l.Reverse.SrcPort),
		sent: traffic{l.Forward.Packets, l.Forward.Bytes}, answered: traffic{l.Reverse.Packets, l.Reverse.Bytes},
	}
	if tcp, ok := l.ProtoInfo.(*netlink.ProtoInfoTCP); ok {
		f.state = tcp.State
	}
	return f
}

// tracked makes the namespace track connections and count their packets.
func tracked(t testing.TB) {
	t.Helper()
	var c nftables.Conn
	table := c.AddTable(&nftables.Table{Name: "sampan-test", Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{
		Name: "all", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityFilter,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}}})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	SetAccounting("1")
}

// talkTo opens a connection to a server that answers, and leaves it open until the test ends.
func talkTo(t testing.TB, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
}

// TestFlowsAreReadAsByOthers compares what is read of the kernel with what a library
// reads, for everything and for selections, of which the kernel passes over the rest.
func TestFlowsAreReadAsByOthers(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		tracked(t)
		talkTo(t, "127.0.0.1:0")
		talkTo(t, "[::1]:0")
		for _, v6 := range []bool{false, true} {
			made := someFlows(v6, 1000) // more than are in one part of a list
			remember(t, v6, made)
			want := inLibrary(t, v6)
			got := read(t, selection{v6: v6})
			if len(want) < len(made)+1 || !maps.Equal(want, keysOf(got)) {
				t.Fatalf("IPv6 %t: %d flows were made, others read %d, we read %d; a difference: %v", v6, len(made), len(want), len(got), different(want, keysOf(got)))
			}
			for f := range want {
				if strings.HasSuffix(f, "{0 0}") && strings.Contains(f, "127.0.0.1") {
					t.Errorf("%s: nothing was counted", f)
				}
			}
			for _, f := range made[:5] {
				for _, s := range []selection{
					{v6: v6, protocol: f.protocol},
					{v6: v6, protocol: f.protocol, to: f.to},
					{v6: v6, protocol: f.protocol, server: f.server},
					{v6: v6, protocol: f.protocol, to: netip.AddrPortFrom(netip.Addr{}, f.to.Port()), server: f.server},
					{v6: v6, protocol: f.protocol, to: netip.AddrPortFrom(f.to.Addr(), 0), server: netip.AddrPortFrom(f.server.Addr(), 0)},
				} {
					some := keysOf(read(t, s))
					selected := map[string]bool{}
					for _, m := range made {
						if s.has(&m, !v6) {
							selected[m.String()] = true
						}
					}
					maps.DeleteFunc(some, func(f string, _ bool) bool { return strings.Contains(f, "127.0.0.1") || strings.Contains(f, "[::1]") })
					if !maps.Equal(some, selected) {
						t.Errorf("%+v: %d flows, want %d; a difference: %v", s, len(some), len(selected), different(some, selected))
					}
				}
			}
		}
	})
}

// has is what the kernel is asked for: addresses of IPv6 are not.
func (s selection) has(f *flow, addresses bool) bool {
	fits := func(want, is netip.AddrPort) bool {
		return (want.Port() == 0 || want.Port() == is.Port()) && (!want.Addr().IsValid() || !addresses || want.Addr() == is.Addr())
	}
	return f.protocol == s.protocol && fits(s.to, f.to) && fits(s.server, f.server)
}

func keysOf[V any](m map[string]V) map[string]bool {
	all := map[string]bool{}
	for k := range m {
		all[k] = true
	}
	return all
}

// different returns what one has and the other has not.
func different(a, b map[string]bool) string {
	for _, m := range []map[string]bool{a, b} {
		for f := range m {
			if !a[f] || !b[f] {
				return f
			}
		}
	}
	return "none"
}

func TestConntrackLooksUpAndRemovesFlows(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		tracked(t)
		for _, v6 := range []bool{false, true} {
			made := someFlows(v6, 3*atOnce+1)
			remember(t, v6, made)
			all := read(t, selection{v6: v6})
			names := slices.Sorted(maps.Keys(all))
			var keys []flowKey
			for _, n := range names {
				keys = append(keys, all[n])
			}
			c, err := openConntrack()
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			look := func() (n int) {
				t.Helper()
				seen := map[int]bool{}
				if err := c.look(v6, keys, func(i int, now *flow) {
					if seen[i] || now.String() != names[i] {
						t.Errorf("%s is %s now", names[i], now)
					}
					seen[i] = true
				}); err != nil {
					t.Fatal(err)
				}
				return len(seen)
			}
			if n := look(); n != len(made) {
				t.Errorf("%d flows, want %d", n, len(made))
			}
			// Removed are those and no others, and what is gone already is no error.
			gone := keys[:2*atOnce]
			for range 2 {
				if err := c.remove(v6, gone); err != nil {
					t.Error(err)
				}
				if n := look(); n != len(made)-len(gone) {
					t.Errorf("%d flows are left, want %d", n, len(made)-len(gone))
				}
			}
			// The same addresses and ports are another flow the next time, but for the few of which the kernel
			// makes the same number of the same piece of memory.
			few := len(made) / 10
			if err := c.remove(v6, keys); err != nil {
				t.Error(err)
			}
			remember(t, v6, made)
			if n := look(); n > few {
				t.Errorf("%d flows are taken for those that had their addresses before", n)
			}
			if err := c.remove(v6, keys); err != nil {
				t.Error(err)
			}
			if n := len(read(t, selection{v6: v6})); n < len(made)-few {
				t.Errorf("%d flows of %d are left: they had other keys", n, len(made))
			}
		}
	})
}

// What Linux 6.18 on a machine with little-endian numbers says of a connection of each family.
const (
	real4 = "0c0100000001220001000000375f0000020000003400018014000180080001007f000001080002007f0000011c000280050001000600000006000200ca620000" +
		"060003008e6300003400028014000180080001007f000001080002007f0000011c0002800500010006000000060002008e63000006000300ca62000008000300" +
		"0000018e080008000000000008000c00557541ba08000b00000000010800070000069780300004802c0001800500010003000000050002000a00000005000300" +
		"0a000000060004002300000006000500230000001c0009800c00010000000000000000030c00020000000000000000a41c000a800c0001000000000000000002" +
		"0c0002000000000000000075"
	real6 = "3c0100000001220001000000c96181bb0a0000004c0001802c000180140003000000000000000000000000000000000114000400000000000000000000000000" +
		"000000011c000280050001000600000006000200c98a0000060003008d9300004c0002802c000180140003000000000000000000000000000000000114000400" +
		"000000000000000000000000000000011c0002800500010006000000060002008d93000006000300c98a0000080003000000018e080008000000000008000c00" +
		"10615a8008000b0000000001080007000006977f300004802c0001800500010003000000050002000a000000050003000a000000060004002300000006000500" +
		"230000001c0009800c00010000000000000000030c00020000000000000000e01c000a800c00010000000000000000020c000200000000000000009d"
)

// FuzzMessages has what the kernel might send, cut and changed in any way: there is no
// panic, no loop without an end, and what is read is within what was received.
func FuzzMessages(f *testing.F) {
	c := conntrack{}
	at := c.message(ctNew, 0, false)
	c.out = selection{protocol: unix.IPPROTO_TCP, to: netip.MustParseAddrPort("10.0.0.1:80"), server: netip.MustParseAddrPort("10.0.0.2:8080")}.append(c.out)
	c.sized(at)
	f.Add(c.out)
	for _, text := range []string{real4, real6, real4 + real6} {
		b, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{20, 0, 0, 0, unix.NLMSG_DONE, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{20, 0, 0, 0, unix.NLMSG_ERROR, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{15, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		check := func(f *flow) {
			if n++; n > len(b)/unix.SizeofNlMsghdr+1 {
				t.Fatalf("%d flows in %d bytes", n, len(b))
			}
			for _, a := range []netip.AddrPort{f.client, f.to, f.server} {
				if !a.IsValid() || a.Addr().Is4In6() || a.Addr().Zone() != "" {
					t.Errorf("an address is %v", a)
				}
			}
			k := f.key.clone()
			if len(k.tuple)+len(k.zone) > len(b) || len(k.tuple) == 0 {
				t.Errorf("a key of %d and %d bytes in %d", len(k.tuple), len(k.zone), len(b))
			}
			// It is read again from its key as it was read.
			var again flow
			again.read(append(make([]byte, netfilter.GenLen), k.tuple...))
			if again.client != f.client || again.to != f.to || again.protocol != f.protocol {
				t.Errorf("%v is read again as %v", f, &again)
			}
			mayQueue(f, n%2 == 0)
			(&forgetter{}).stale(f)
		}
		l := listing{seq: 1, flow: check}
		err := l.take(b)
		if l.over && l.missed && !errors.Is(err, errMissed) {
			t.Errorf("some were missed: %v", err)
		}
		n = 0
		r := replies{first: 1, asked: 3, left: 3, flow: func(i int, now *flow) {
			if i < 0 || i >= 3 {
				t.Fatalf("an answer to question %d of 3", i)
			}
			if now != nil {
				check(now)
			}
		}}
		if _ = r.take(b); r.left < 0 {
			t.Errorf("%d answers are missing", r.left)
		}
	})
}

// busy is how long processors have worked for this process.
func busy(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReading looks for the queue of one server among 100,000 flows, in TIME_WAIT most of them: by
// ourselves as Settle does, for many servers of which the kernel has to write all down, and by the library with
// which it was done before. What counts is the ratio.
func BenchmarkReading(b *testing.B) {
	nstest.NeedRoot(b)
	const size = 100_000
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocked, so that the namespace ends with the thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			b.Error(err)
			return
		}
		const timeWait, servers = 7, 50
		all := make([]flow, size)
		for i := range all {
			all[i] = flow{
				protocol: unix.IPPROTO_TCP, state: timeWait,
				client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / 50_000), 1}), uint16(1024+i%50_000)),
				to:     netip.MustParseAddrPort("10.0.0.2:80"), server: server(i % servers),
			}
		}
		remember(b, false, all)
		one := []*drain{{removal: removal{backend: server(1), at: time.Now()}}}
		one[0].frontend.Address, one[0].frontend.Port = all[0].to.Addr(), all[0].to.Port()
		var many []*drain
		for i := range servers {
			p := *one[0]
			p.backend = server(i)
			many = append(many, &p)
		}
		var took [3]time.Duration
		var allocated [3]uint64
		measure := func(i int, f func()) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := busy(b)
			f()
			took[i] += busy(b) - start
			runtime.ReadMemStats(&after)
			allocated[i] += after.Mallocs - before.Mallocs
		}
		rounds := 0
		for b.Loop() {
			rounds++
			for i, some := range [][]*drain{one, many} {
				measure(i, func() {
					c, err := openConntrack()
					if err != nil {
						b.Fatal(err)
					}
					defer c.close()
					if err := search(c, some, true); err != nil {
						b.Error(err)
					}
				})
			}
			measure(2, func() {
				list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
				if err != nil {
					b.Error(err)
				}
				for _, l := range list {
					if f := fromLibrary(l); one[0].has(f.to, f.server) && mayQueue(&f, true) {
						b.Error("a flow in TIME_WAIT queues")
					}
				}
			})
		}
		for i, name := range []string{"one", "many", "library"} {
			b.ReportMetric(float64(took[i].Nanoseconds())/size/float64(rounds), name+"-cpu-ns/flow")
			b.ReportMetric(float64(allocated[i])/float64(rounds), name+"-allocs")
		}
		b.ReportMetric(float64(took[2])/float64(took[0]), "x-library/one")
		b.ReportMetric(float64(took[2])/float64(took[1]), "x-library/many")
	})
	wg.Wait()
}

func server(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(1 + i)}), 8080)
}

func TestEndsOfAPacket(t *testing.T) {
	four := append([]byte{0x45, 11: 0, 12: 10, 15: 1, 16: 10, 19: 2}, 0x1f, 0x90, 0, 80)
	options := append(append([]byte{0x46}, four[1:20]...), 1, 1, 1, 1, 0x1f, 0x90, 0, 80)
	six := append([]byte{0x60, 8: 0xfd, 23: 1, 24: 0xfd, 39: 2}, 0x1f, 0x90, 0, 80)
	tests := []struct {
		name     string
		packet   []byte
		from, to string // "": it is none
	}{
		{"IPv4", four, "10.0.0.1:8080", "10.0.0.2:80"},
		{"IPv4 with options", options, "10.0.0.1:8080", "10.0.0.2:80"},
		{"IPv6", six, "[fd00::1]:8080", "[fd00::2]:80"},
		{"nothing", nil, "", ""},
		{"without ports", four[:20], "", ""},
		{"IPv6 without ports", six[:43], "", ""},
		{"a header that is too short", append([]byte{0x41}, four[1:]...), "", ""},
		{"its options are not there", options[:24], "", ""},
	}
	for _, tt := range tests {
		from, to, ok := ends(tt.packet)
		if ok != (tt.from != "") || ok && (from.String() != tt.from || to.String() != tt.to) {
			t.Errorf("%s: ends = %s, %s, %v, want %q, %q", tt.name, from, to, ok, tt.from, tt.to)
		}
	}
}
