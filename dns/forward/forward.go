package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/sampan-io/sampan/internal/run"
)

// Options configures a [Forwarder]. Servers is required.
type Options struct {
	// Servers returns the servers to ask, in order of preference. If there are none, missing says
	// why, for users. It must be fast and may be called from any goroutine.
	Servers func() (servers []netip.AddrPort, missing string)

	// Own are our own addresses, which are never asked.
	Own []netip.AddrPort

	CacheBytes  int // of cached answers; 0 means 4 MiB
	Outstanding int // largest number of questions in progress; 0 means 1000

	// Exchange asks one server once. It must return when ctx is cancelled. Nil means over UDP, and
	// over TCP if the answer is truncated.
	Exchange func(ctx context.Context, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error)

	Log *slog.Logger // nil means slog.Default
}

const (
	defaultCacheBytes  = 4 << 20
	defaultOutstanding = 1000 // CoreDNS's in Kubernetes
)

// Time limits. Resolvers in pods retry after five seconds.
const (
	patience   = 4 * time.Second        // of a question in total
	hedge      = 300 * time.Millisecond // until another server is asked in parallel
	resend     = time.Second            // until the same server is asked again
	tries      = 2                      // of each server
	shunned    = 10 * time.Second       // for which a server that failed is asked last
	failureTTL = 5 * time.Second        // for which failures are cached (RFC 9520, 3.2)
	lookAgain  = time.Second            // between reads of the list of servers
	suspicion  = 25 * time.Millisecond  // without an answer, until a server is probed for a loop
	loopRest   = 30 * time.Second       // until a server that looped is tried again
)

// ErrBusy is returned by [Forwarder.Ask] if all slots are in use.
var ErrBusy = errors.New("too many questions are under way")

// A MissingError is returned if there is no server to ask. Its text says why.
type MissingError struct{ Why string }

func (e *MissingError) Error() string { return e.Why }

// A Question is a question in class IN. It is comparable.
type Question struct {
	Name     string // fully qualified, in lower case
	Type     uint16
	DNSSEC   bool // the DO bit: with DNSSEC records
	Checking bool // the CD bit: without validation
}

// A Forwarder forwards questions. It is safe for concurrent use.
type Forwarder struct {
	opts  Options
	cache *cache
	count *counters
	slots chan struct{} // one for each question in progress

	mu      sync.Mutex
	flights map[Question]*flight // guarded by mu
	looked  time.Time            // guarded by mu; time of the last call of Servers
	missing string               // guarded by mu
	servers []*server            // guarded by mu; never changed in place
	nonces  map[string]*server   // guarded by mu; by the name in their probes
}

// A server is an upstream server.
type server struct {
	address netip.AddrPort
	nonce   string // in the names of its probes

	// The fields below are guarded by the Forwarder's mu.
	probes  uint64        // number of probes, whose names all differ, so that no cache answers them
	probing bool          // a probe is in progress
	probed  bool          // it got a probe, and has answered later questions
	shunned time.Time     // it is asked last until then
	looped  chan struct{} // closed when it leads back to us
	isLoop  bool
	since   time.Time // when that was found
	logged  bool      // the loop was logged
}

// A flight is a question in progress.
type flight struct {
	done chan struct{} // closed when the other fields are set
	msg  *dns.Msg
	err  error
}

// New returns a forwarder. It starts nothing.
func New(o Options) (*Forwarder, error) {
	if o.Servers == nil {
		return nil, errors.New("forward: Options.Servers is nil")
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.Outstanding == 0 {
		o.Outstanding = defaultOutstanding
	}
	if o.CacheBytes < 0 || o.Outstanding < 0 {
		return nil, errors.New("forward: Options.CacheBytes or Outstanding is less than 0")
	}
	if o.Exchange == nil {
		o.Exchange = exchange
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	f := &Forwarder{
		opts: o, slots: make(chan struct{}, o.Outstanding),
		flights: map[Question]*flight{}, nonces: map[string]*server{},
	}
	f.cache = newCache(o.CacheBytes)
	f.count = newCounters(f)
	return f, nil
}

// Cached returns the cached answer to a question. The message is the caller's; its TTLs are the
// remaining ones.
func (f *Forwarder) Cached(q Question) (m *dns.Msg, err error, ok bool) {
	m, err, ok = f.cache.get(q, time.Now())
	switch {
	case !ok:
		f.count.misses.Inc()
	case err != nil || m.Rcode != dns.RcodeSuccess || len(m.Answer) == 0:
		f.count.denials.Inc()
	default:
		f.count.hits.Inc()
	}
	return m, err, ok
}

// Reserve takes a slot for a question that is not cached, and reports whether there was one;
// otherwise the answer is [ErrBusy]. Release frees the slot.
func (f *Forwarder) Reserve() bool {
	select {
	case f.slots <- struct{}{}:
		return true
	default:
		f.count.refused.Inc()
		return false
	}
}

// Release frees the slot of [Forwarder.Reserve].
func (f *Forwarder) Release() { <-f.slots }

// Ask asks the servers, and blocks until there is an answer or all have failed. The message is
// shared and must not be changed; its Rcode may be any. The error is a [*MissingError] or has the
// error of each server.
func (f *Forwarder) Ask(ctx context.Context, q Question) (*dns.Msg, error) {
	f.mu.Lock()
	if under := f.flights[q]; under != nil {
		f.mu.Unlock()
		select {
		case <-under.done:
			return under.msg, under.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	servers, missing := f.list()
	if len(servers) == 0 {
		f.mu.Unlock()
		return nil, &MissingError{missing}
	}
	flight := &flight{done: make(chan struct{})}
	f.flights[q] = flight
	f.mu.Unlock()

	flight.msg, flight.err = f.ask(ctx, q, servers)
	if ctx.Err() == nil {
		f.keep(q, flight)
	}
	f.mu.Lock()
	delete(f.flights, q)
	f.mu.Unlock()
	close(flight.done)
	return flight.msg, flight.err
}

// errSilent is the error of a server that did not answer in time.
var errSilent = errors.New("no answer in time")

func (f *Forwarder) keep(q Question, flight *flight) {
	switch {
	case flight.err == nil:
		f.cache.put(q, flight.msg, nil, lifetime(flight.msg), time.Now())
	case errors.Is(flight.err, errSilent):
		f.cache.put(q, nil, flight.err, failureTTL, time.Now())
	}
}

// list returns the servers to ask, with failed ones last. mu is held.
func (f *Forwarder) list() (order []*server, missing string) {
	now := time.Now()
	if f.looked.IsZero() || now.Sub(f.looked) >= lookAgain {
		f.looked = now
		f.refresh()
	}
	loops := ""
	var later []*server
	for _, s := range f.servers {
		switch {
		case s.isLoop && now.Sub(s.since) < loopRest:
			loops = s.address.String()
		case s.isLoop:
			// The loop may have been fixed.
			s.isLoop, s.probed, s.looped = false, false, make(chan struct{})
			later = append(later, s)
		case now.Before(s.shunned):
			later = append(later, s)
		default:
			order = append(order, s)
		}
	}
	missing = f.missing
	if loops != "" {
		missing = "the upstream resolver " + loops + " forwards to this server (a loop); name another one with --cluster-dns-upstream"
	}
	return append(order, later...), missing
}

// refresh reads the list of servers. mu is held.
func (f *Forwarder) refresh() {
	found, missing := f.opts.Servers()
	found = slices.DeleteFunc(slices.Clone(found), func(a netip.AddrPort) bool { return slices.Contains(f.opts.Own, a) })
	f.missing = missing
	if len(found) == 0 && missing == "" {
		f.missing = "the only upstream resolver is this server itself; name another one with --cluster-dns-upstream"
	}
	if slices.EqualFunc(found, f.servers, func(a netip.AddrPort, s *server) bool { return a == s.address }) {
		return
	}
	f.servers, f.nonces = nil, map[string]*server{}
	for _, a := range found {
		s := &server{address: a, looped: make(chan struct{}), nonce: strconv.FormatUint(rand.Uint64(), 36)}
		f.servers = append(f.servers, s)
		f.nonces[s.nonce] = s
	}
	f.opts.Log.Info("upstream resolvers", "servers", found, "missing", f.missing)
}

// Looped reports whether a question from a client is one of our own probes. It is fast for all
// other questions.
func (f *Forwarder) Looped(name string, kind uint16) bool {
	if kind != dns.TypeHINFO {
		return false
	}
	nonce, _, _ := strings.Cut(strings.ToLower(name), "-")
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.nonces[nonce]
	if s == nil {
		return false
	}
	if !s.isLoop {
		s.isLoop, s.since = true, time.Now()
		close(s.looped)
	}
	if !s.logged {
		s.logged = true
		f.opts.Log.Error("an upstream resolver forwards to this server (a loop) and is not used; name another one with --cluster-dns-upstream", "server", s.address)
	}
	return true
}

// message returns the query. Without EDNS an answer over UDP has 512 bytes at most.
func (q Question) message(edns bool) *dns.Msg {
	m := &dns.Msg{Question: []dns.Question{{Name: q.Name, Qtype: q.Type, Qclass: dns.ClassINET}}}
	m.Id, m.RecursionDesired, m.CheckingDisabled = dns.Id(), true, q.Checking
	m.AuthenticatedData = true // request the AD bit (RFC 6840, 5.7)
	if edns {
		m.SetEdns0(maxUDP, q.DNSSEC)
	}
	return m
}

// ask asks servers, one after the other, until one answers.
func (f *Forwarder) ask(ctx context.Context, q Question, servers []*server) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSilent)
	defer cancel()
	group := run.NewGroup(ctx, 0)
	defer group.Stop()

	type result struct {
		server *server
		msg    *dns.Msg
		err    error
	}
	total := tries * len(servers)
	results := make(chan result, total)
	started, running := 0, 0
	silent := map[*server]time.Time{} // since when a server has not answered
	start := func() {
		s := servers[started%len(servers)]
		again := started >= len(servers)
		if started++; silent[s].IsZero() {
			silent[s] = time.Now()
		}
		if group.Go(func(ctx context.Context) {
			m, err := f.askOne(ctx, s, q, again)
			results <- result{s, m, err}
		}) {
			running++ // otherwise ctx is cancelled
		}
	}
	pause := func() time.Duration {
		if started < len(servers) {
			return hedge
		}
		return resend
	}
	start()
	next := time.NewTimer(pause())
	defer next.Stop()

	var unhelpful *dns.Msg
	var errs []error
	for running > 0 {
		select {
		case r := <-results:
			running--
			delete(silent, r.server)
			if r.err == nil && helpful(r.msg) {
				f.note(r.server, nil)
				for s, since := range silent {
					if time.Since(since) >= hedge {
						f.note(s, errSilent) // it is not asked first again soon
					}
				}
				return r.msg, nil
			}
			if ctx.Err() == nil || errors.Is(context.Cause(ctx), errSilent) {
				f.note(r.server, cmpErr(r.err, r.msg))
			}
			if r.err == nil && (r.msg.Rcode == dns.RcodeServerFailure || r.msg.Rcode == dns.RcodeRefused) {
				unhelpful = r.msg
			} else if err := fmt.Errorf("%s: %w", r.server.address, cmpErr(r.err, r.msg)); !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
				errs = append(errs, err)
			}
			// A server that failed with an answer, or is unreachable, would do so again.
			if started < len(servers) && ctx.Err() == nil {
				start()
				next.Reset(pause())
			}
		case <-next.C:
			if started < total && ctx.Err() == nil {
				start()
				next.Reset(pause())
			}
		}
	}
	if unhelpful != nil {
		return unhelpful, nil
	}
	if len(errs) == 0 {
		return nil, context.Cause(ctx)
	}
	return nil, errors.Join(errs...)
}

// cmpErr returns the error of an answer that does not help.
func cmpErr(err error, m *dns.Msg) error {
	if err == nil {
		err = fmt.Errorf("it answers %s", rcodeName(m.Rcode))
	}
	return err
}

// rcodeName returns the name of a code; one number has two names.
func rcodeName(rcode int) string {
	if rcode == dns.RcodeBadVers {
		return "BADVERS"
	}
	return cmp.Or(dns.RcodeToString[rcode], "other")
}

// helpful reports whether an answer is an answer, even a negative one, and not a failure.
func helpful(m *dns.Msg) bool {
	return m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError
}

// note records the result of a server.
func (f *Forwarder) note(s *server, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		s.shunned = time.Time{}
		return
	}
	f.count.failures.Inc()
	s.shunned = time.Now().Add(shunned)
	s.probed = s.probed && !errors.Is(err, errSilent)
}

// askOne asks one server, unless it leads back to us. Again is true if it did not answer the same
// question before.
func (f *Forwarder) askOne(ctx context.Context, s *server, q Question, again bool) (*dns.Msg, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.mu.Lock()
	looped := s.looped
	f.mu.Unlock()
	watch := run.NewGroup(ctx, 0)
	watch.Go(func(ctx context.Context) {
		select {
		case <-looped:
			cancel(errLoop)
		case <-ctx.Done():
		}
	})
	watch.Go(func(ctx context.Context) {
		if run.Pause(ctx, suspicion) {
			f.probe(ctx, s, again)
		}
	})
	began := time.Now()
	m, err := f.opts.Exchange(ctx, s.address, q.message(true))
	if err == nil && unknownEDNS(m) { // RFC 6891, 7
		m, err = f.opts.Exchange(ctx, s.address, q.message(false))
	}
	f.count.asked(s.address, m, err, time.Since(began))
	watch.Stop()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return m, err
}

// unknownEDNS reports whether an answer is that of a server without support for EDNS.
func unknownEDNS(m *dns.Msg) bool {
	switch m.Rcode {
	case dns.RcodeBadVers:
		return true // there is no version before the one that is asked with
	case dns.RcodeFormatError, dns.RcodeNotImplemented:
		return m.IsEdns0() == nil
	}
	return false
}

var errLoop = errors.New("it forwards to this server (a loop)")

// probe sends a server a probe for loops, if one is due. Its answer is ignored.
func (f *Forwarder) probe(ctx context.Context, s *server, again bool) {
	f.mu.Lock()
	due := !s.probing && (again || !s.probed)
	if !due {
		f.mu.Unlock()
		return
	}
	s.probing, s.probed = true, true
	s.probes++
	name := s.nonce + "-" + strconv.FormatUint(s.probes, 36) + "."
	f.mu.Unlock()
	_, _ = f.opts.Exchange(ctx, s.address, Question{Name: name, Type: dns.TypeHINFO}.message(true))
	f.mu.Lock()
	s.probing = false
	f.mu.Unlock()
}
