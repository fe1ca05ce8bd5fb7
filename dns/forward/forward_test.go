package forward_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/sampan-io/sampan/dns/forward"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	first  = netip.MustParseAddrPort("192.0.2.1:53")
	second = netip.MustParseAddrPort("192.0.2.2:53")
)

// A sea is what lies behind the forwarder: servers that answer as the test says.
type sea struct {
	*forward.Forwarder
	mu      sync.Mutex
	servers []netip.AddrPort                                                     // guarded by mu
	answer  map[netip.AddrPort]func(context.Context, *dns.Msg) (*dns.Msg, error) // guarded by mu
	asked   []string                                                             // guarded by mu; "1 name", probes left out
}

func newSea(t *testing.T, o forward.Options, servers ...netip.AddrPort) *sea {
	t.Helper()
	s := &sea{servers: servers, answer: map[netip.AddrPort]func(context.Context, *dns.Msg) (*dns.Msg, error){}}
	o.Log = slog.New(slog.DiscardHandler)
	o.Servers = func() ([]netip.AddrPort, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.servers) == 0 {
			return nil, "nobody is there"
		}
		return s.servers, ""
	}
	o.Exchange = func(ctx context.Context, at netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
		s.mu.Lock()
		answer := s.answer[at]
		if m.Question[0].Qtype != dns.TypeHINFO {
			s.asked = append(s.asked, fmt.Sprint(at.Addr().As4()[3], " ", m.Question[0].Name))
		}
		s.mu.Unlock()
		return answer(ctx, m)
	}
	var err error
	if s.Forwarder, err = forward.New(o); err != nil {
		t.Fatal(err)
	}
	for _, at := range servers {
		s.on(at, records("300 IN A 192.0.2.80"))
	}
	return s
}

func (s *sea) on(at netip.AddrPort, answer func(context.Context, *dns.Msg) (*dns.Msg, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer[at] = answer
}

// took returns who was asked for what since it was called last.
func (s *sea) took() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := strings.Join(s.asked, ", ")
	s.asked = nil
	return asked
}

func records(rest ...string) func(context.Context, *dns.Msg) (*dns.Msg, error) {
	return func(_ context.Context, m *dns.Msg) (*dns.Msg, error) {
		r := new(dns.Msg).SetReply(m)
		for _, text := range rest {
			rr, err := dns.NewRR(m.Question[0].Name + " " + text)
			if err != nil {
				return nil, err
			}
			if rr.Header().Rrtype == dns.TypeSOA {
				r.Ns = append(r.Ns, rr)
			} else {
				r.Answer = append(r.Answer, rr)
			}
		}
		return r, nil
	}
}

func code(rcode int, rest ...string) func(context.Context, *dns.Msg) (*dns.Msg, error) {
	return func(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
		r, err := records(rest...)(ctx, m)
		if err == nil {
			r.Rcode = rcode
		}
		return r, err
	}
}

func silent(ctx context.Context, _ *dns.Msg) (*dns.Msg, error) {
	<-ctx.Done()
	return nil, errors.New("i/o timeout")
}

func after(d time.Duration, answer func(context.Context, *dns.Msg) (*dns.Msg, error)) func(context.Context, *dns.Msg) (*dns.Msg, error) {
	return func(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
		if !run.Pause(ctx, d) {
			return nil, errors.New("i/o timeout")
		}
		return answer(ctx, m)
	}
}

func about(name string) forward.Question { return forward.Question{Name: name, Type: dns.TypeA} }

// ask asks, from the cache first, and says what came of it and after how long.
func (s *sea) ask(t *testing.T, name string) string {
	t.Helper()
	began := time.Now()
	m, err, known := s.Cached(about(name))
	how := "kept"
	if !known {
		m, err = s.Ask(t.Context(), about(name))
		how = time.Since(began).String()
	}
	if err != nil {
		return fmt.Sprintf("error after %s: %v", how, err)
	}
	said := dns.RcodeToString[m.Rcode]
	for _, rr := range slices.Concat(m.Answer, m.Ns) {
		said += fmt.Sprintf(" %s %d", dns.TypeToString[rr.Header().Rrtype], rr.Header().Ttl)
	}
	return said + ", " + how
}

func story(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestAnswersAreKeptAsLongAsTheyHold(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first)
		s.on(first, records("300 IN A 192.0.2.80", "60 IN A 192.0.2.81"))
		want(t, "first", s.ask(t, "a."), "NOERROR A 300 A 60, 0s")
		time.Sleep(20 * time.Second)
		want(t, "20 s later", s.ask(t, "a."), "NOERROR A 280 A 40, kept")
		time.Sleep(40 * time.Second)
		want(t, "60 s later", s.ask(t, "a."), "NOERROR A 300 A 60, 0s")

		s.on(first, records("0 IN A 192.0.2.80"))
		want(t, "TTL 0", s.ask(t, "zero."), "NOERROR A 0, 0s")
		want(t, "TTL 0 again", s.ask(t, "zero."), "NOERROR A 0, 0s")

		s.on(first, records("1000000 IN A 192.0.2.80"))
		s.ask(t, "long.")
		time.Sleep(time.Hour - time.Second)
		want(t, "almost an hour later", s.ask(t, "long."), "NOERROR A 996401, kept")
		time.Sleep(time.Second)
		want(t, "an hour later", s.ask(t, "long."), "NOERROR A 1000000, 0s")
	})
}

// TestNegativeAnswersAreKeptByTheirSOA is RFC 2308.
func TestNegativeAnswersAreKeptByTheirSOA(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first)
		for _, tt := range []struct {
			name   string
			answer func(context.Context, *dns.Msg) (*dns.Msg, error)
			held   time.Duration // 0: not at all
		}{
			{"none", code(dns.RcodeNameError, "600 IN SOA a. b. 1 2 3 4 30"), 30 * time.Second},
			{"nodata", code(dns.RcodeSuccess, "20 IN SOA a. b. 1 2 3 4 300"), 20 * time.Second},
			{"alias", code(dns.RcodeSuccess, "10 IN CNAME b.", "20 IN SOA a. b. 1 2 3 4 300"), 10 * time.Second},
			{"long", code(dns.RcodeNameError, "86400 IN SOA a. b. 1 2 3 4 86400"), 30 * time.Minute},
			{"plain", code(dns.RcodeNameError), 0},
			{"empty", code(dns.RcodeSuccess), 0},
			{"broken", code(dns.RcodeServerFailure, "20 IN SOA a. b. 1 2 3 4 300"), 5 * time.Second}, // RFC 9520
			{"refused", code(dns.RcodeRefused), 5 * time.Second},
			{"cut", func(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
				r, err := records("300 IN A 192.0.2.80")(ctx, m)
				r.Truncated = true
				return r, err
			}, 0},
		} {
			s.on(first, tt.answer)
			s.ask(t, tt.name+".")
			s.took()
			if tt.held > 0 {
				time.Sleep(tt.held - time.Second)
				if s.ask(t, tt.name+"."); s.took() != "" {
					t.Errorf("%s: asked again before %v are over", tt.name, tt.held)
				}
				time.Sleep(time.Second)
			}
			if s.ask(t, tt.name+"."); s.took() == "" {
				t.Errorf("%s: still kept after %v", tt.name, tt.held)
			}
		}
	})
}

func TestSilentServerIsHedged(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first, second)
		s.on(first, silent)
		want(t, "first question", s.ask(t, "a."), "NOERROR A 300, 300ms")
		want(t, "the servers", s.took(), "1 a., 2 a.")
		// It is asked last for a while.
		want(t, "second question", s.ask(t, "b."), "NOERROR A 300, 0s")
		want(t, "the servers", s.took(), "2 b.")
		s.on(first, records("300 IN A 192.0.2.80"))
		time.Sleep(11 * time.Second)
		want(t, "later", s.ask(t, "c."), "NOERROR A 300, 0s")
		want(t, "the servers", s.took(), "1 c.")
		// A slow one is faster than no answer at all.
		s.on(first, after(time.Second, records("300 IN A 192.0.2.80")))
		s.on(second, silent)
		want(t, "a slow one", s.ask(t, "d."), "NOERROR A 300, 1s")
	})
}

func TestFailingServerIsNotFinal(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first, second)
		for _, answer := range []func(context.Context, *dns.Msg) (*dns.Msg, error){
			code(dns.RcodeServerFailure), code(dns.RcodeRefused),
			func(context.Context, *dns.Msg) (*dns.Msg, error) { return nil, errors.New("connection refused") },
		} {
			s.on(first, answer)
			want(t, "question", s.ask(t, "a."), "NOERROR A 300, 0s")
			want(t, "the servers", s.took(), "1 a., 2 a.")
			time.Sleep(time.Hour)
		}
		// What all say is said.
		s.on(first, code(dns.RcodeRefused))
		s.on(second, code(dns.RcodeServerFailure))
		want(t, "nobody can", s.ask(t, "a."), "SERVFAIL, 0s")
		want(t, "nobody can, again", s.ask(t, "a."), "SERVFAIL, kept")
		time.Sleep(5 * time.Second)
		s.on(second, func(context.Context, *dns.Msg) (*dns.Msg, error) { return nil, errors.New("network is unreachable") })
		s.on(first, func(context.Context, *dns.Msg) (*dns.Msg, error) { return nil, errors.New("network is unreachable") })
		time.Sleep(time.Hour)
		want(t, "no network", s.ask(t, "a."), "error after 0s: 192.0.2.1:53: network is unreachable\n192.0.2.2:53: network is unreachable")
	})
}

// TestServersOlderThanEDNS are asked without it. What they say of it is no answer to the
// question.
func TestServersOlderThanEDNS(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first)
		old := func(rcode int, withEDNS bool) func(context.Context, *dns.Msg) (*dns.Msg, error) {
			return func(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
				if m.IsEdns0() == nil {
					return records("300 IN A 192.0.2.80")(ctx, m)
				}
				r, err := code(rcode)(ctx, m)
				if withEDNS {
					r.SetEdns0(1232, false)
				}
				return r, err
			}
		}
		for i, tt := range []struct {
			answer      func(context.Context, *dns.Msg) (*dns.Msg, error)
			want, asked string
		}{
			{old(dns.RcodeFormatError, false), "NOERROR A 300, 0s", "1 n0., 1 n0."},
			{old(dns.RcodeNotImplemented, false), "NOERROR A 300, 0s", "1 n1., 1 n1."},
			{old(dns.RcodeBadVers, true), "NOERROR A 300, 0s", "1 n2., 1 n2."},
			// A server that supports EDNS rejects our query: the client's query was right, so
			// the client gets no FORMERR.
			{old(dns.RcodeFormatError, true), "error after 0s: 192.0.2.1:53: it answers FORMERR", "1 n3."},
			{code(dns.RcodeBadVers), "error after 0s: 192.0.2.1:53: it answers BADVERS", "1 n4., 1 n4."},
			{old(dns.RcodeServerFailure, false), "SERVFAIL, 0s", "1 n5."},
		} {
			s.on(first, tt.answer)
			name := fmt.Sprintf("n%d.", i)
			want(t, name, s.ask(t, name), tt.want)
			want(t, "asked for "+name, s.took(), tt.asked)
		}
	})
}

// TestALostPacketIsSentAgain has one server that does not hear the first packet.
func TestALostPacketIsSentAgain(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first)
		var sent atomic.Int32
		s.on(first, func(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
			if m.Question[0].Qtype != dns.TypeHINFO {
				if sent.Add(1) == 1 {
					return silent(ctx, m)
				}
			}
			return records("300 IN A 192.0.2.80")(ctx, m)
		})
		want(t, "question", s.ask(t, "a."), "NOERROR A 300, 1s")
	})
}

// TestSilentServersFail caches the failure for a few seconds, so that a retry fails at once.
func TestSilentServersFail(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first)
		s.on(first, silent)
		want(t, "question", s.ask(t, "a."), "error after 4s: 192.0.2.1:53: no answer in time")
		want(t, "the servers", s.took(), "1 a., 1 a.")
		want(t, "again", s.ask(t, "a."), "error after kept: 192.0.2.1:53: no answer in time")
		s.on(first, records("300 IN A 192.0.2.80"))
		time.Sleep(5 * time.Second)
		want(t, "later", s.ask(t, "a."), "NOERROR A 300, 0s")
	})
}

func TestWithoutServersThereIsAnErrorAtOnce(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{})
		want(t, "question", s.ask(t, "a."), "error after 0s: nobody is there")
		s.on(first, records("300 IN A 192.0.2.80"))
		s.mu.Lock()
		s.servers = []netip.AddrPort{first}
		s.mu.Unlock()
		time.Sleep(time.Second)
		want(t, "when there is one", s.ask(t, "a."), "NOERROR A 300, 0s")
	})
}

// TestManyAskOnce has a hundred ask the same while it is being asked.
func TestManyAskOnce(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{Outstanding: 100}, first)
		s.on(first, after(100*time.Millisecond, records("300 IN A 192.0.2.80")))
		group := run.NewGroup(t.Context(), 0)
		for range 100 {
			if !s.Reserve() {
				t.Fatal("no room")
			}
			group.Go(func(context.Context) {
				defer s.Release()
				if got := s.ask(t, "a."); got != "NOERROR A 300, 100ms" {
					t.Error(got)
				}
			})
		}
		if s.Reserve() {
			t.Error("there is room for more than there should be")
		}
		group.Wait()
		group.Stop()
		want(t, "the servers", s.took(), "1 a.")
		if !s.Reserve() {
			t.Error("the room was not given back")
		}
	})
}

// TestTheCacheIsBounded asks for many names, and for the first again and again.
func TestTheCacheIsBounded(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{CacheBytes: 10_000}, first)
		s.ask(t, "often.")
		for i := range 1000 {
			s.ask(t, fmt.Sprint("n", i, "."))
			if got := s.ask(t, "often."); got != "NOERROR A 300, kept" {
				t.Fatalf("what is asked for often is %s after %d others", got, i)
			}
		}
		s.took()
		s.ask(t, "n999.")
		s.ask(t, "n0.")
		want(t, "asked again", s.took(), "1 n0.")
	})
}

// TestALoopIsFound has a server that sends the probe back.
func TestALoopIsFound(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first, second)
		probes := map[string]int{}
		loop := func(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
			q := m.Question[0]
			if q.Qtype == dns.TypeHINFO {
				s.mu.Lock()
				probes[q.Name]++
				s.mu.Unlock()
			}
			if s.Looped(strings.ToUpper(q.Name), q.Qtype) != (q.Qtype == dns.TypeHINFO) {
				t.Errorf("Looped(%v) is wrong", q)
			}
			return silent(ctx, m)
		}
		s.on(first, loop)
		want(t, "question", s.ask(t, "a."), "NOERROR A 300, 25ms")
		s.took()
		time.Sleep(29 * time.Second)
		want(t, "later", s.ask(t, "b."), "NOERROR A 300, 0s")
		want(t, "the servers", s.took(), "2 b.")
		// After a while it is tried again: last, and found again.
		time.Sleep(time.Second)
		want(t, "another try", s.ask(t, "c."), "NOERROR A 300, 0s")
		want(t, "the servers", s.took(), "2 c.")
		s.mu.Lock()
		s.servers = []netip.AddrPort{first}
		s.mu.Unlock()
		time.Sleep(time.Second)
		// A changed list is tried again: the address may have another server by now.
		want(t, "alone", s.ask(t, "d."), "error after 25ms: 192.0.2.1:53: it forwards to this server (a loop)")
		want(t, "alone, again", s.ask(t, "d."), "error after 0s: the upstream resolver 192.0.2.1:53 forwards to this server (a loop); name another one with --cluster-dns-upstream")
		time.Sleep(30 * time.Second)
		want(t, "alone, another try", s.ask(t, "e."), "error after 25ms: 192.0.2.1:53: it forwards to this server (a loop)")
		// It was mended.
		time.Sleep(30 * time.Second)
		s.on(first, records("300 IN A 192.0.2.80"))
		want(t, "mended", s.ask(t, "f."), "NOERROR A 300, 0s")
		// And broken again, after it has answered: the question is sent again, and a probe with it.
		s.on(first, loop)
		want(t, "broken again", s.ask(t, "g."), "error after 25ms: 192.0.2.1:53: it forwards to this server (a loop)")
		for name, n := range probes {
			if n != 1 {
				t.Errorf("the probe %s was sent %d times: a cache on the way may know it", name, n)
			}
		}
	})
}

// TestALoopThatIsMadeLaterIsFound has a server that answered, its probe too, and then asks
// us in turn.
func TestALoopThatIsMadeLaterIsFound(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first)
		s.on(first, after(100*time.Millisecond, records("300 IN A 192.0.2.80")))
		want(t, "question", s.ask(t, "a."), "NOERROR A 300, 100ms")
		time.Sleep(time.Second)
		want(t, "another", s.ask(t, "b."), "NOERROR A 300, 100ms")
		s.on(first, func(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
			s.Looped(m.Question[0].Name, m.Question[0].Qtype)
			return silent(ctx, m)
		})
		want(t, "a loop", s.ask(t, "c."), "error after 1.025s: 192.0.2.1:53: it forwards to this server (a loop)")
	})
}

// TestQuickServersAreNotProbed: fast servers get no probes.
func TestQuickServersAreNotProbed(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first)
		for _, tt := range []struct {
			takes  time.Duration
			probes int32
		}{{24 * time.Millisecond, 0}, {60 * time.Millisecond, 1}, {61 * time.Millisecond, 0}} {
			var probes atomic.Int32
			s.on(first, func(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
				if m.Question[0].Qtype == dns.TypeHINFO {
					probes.Add(1)
					return records()(ctx, m)
				}
				return after(tt.takes, records("300 IN A 192.0.2.80"))(ctx, m)
			})
			group := run.NewGroup(t.Context(), 0)
			for i := range 10 { // at the same time
				group.Go(func(context.Context) { s.ask(t, fmt.Sprint(tt.takes, i, ".")) })
			}
			group.Wait()
			group.Stop()
			if got := probes.Load(); got != tt.probes {
				t.Errorf("a server that takes %v was sent %d probes, want %d", tt.takes, got, tt.probes)
			}
		}
	})
}

// TestAQuestionIsGivenUp when the client's context is cancelled.
func TestAQuestionIsGivenUp(t *testing.T) {
	story(t, func(t *testing.T) {
		s := newSea(t, forward.Options{}, first)
		s.on(first, silent)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := s.Ask(ctx, about("a.")); err == nil || time.Since(began) != time.Second {
			t.Errorf("err = %v after %v", err, time.Since(began))
		}
		if _, _, known := s.Cached(about("a.")); known {
			t.Error("that it was given up is kept")
		}
	})
}
