package forward

import (
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
	// Servers returns whom to ask, in order of preference; without any, missing says
	// why, for users. It must be quick and may be called from any goroutine.
	Servers func() (servers []netip.AddrPort, missing string)

	// Own are our own addresses, which are never asked.
	Own []netip.AddrPort

	CacheBytes  int // of answers that are kept; 0 means 4 MiB
	Outstanding int // questions that may be under way or wait; 0 means 1000

	// Exchange asks one server once. It must return when ctx is over. Nil means over
	// UDP, and over TCP what does not fit.
	Exchange func(ctx context.Context, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error)

	Log *slog.Logger // nil means slog.Default
}

const (
	defaultCacheBytes  = 4 << 20
	defaultOutstanding = 1000 // as CoreDNS has it in Kubernetes
)

// How long things may take. Resolvers in pods ask again after five seconds.
const (
	patience   = 4 * time.Second        // of a question in all
	hedge      = 300 * time.Millisecond // until another server is asked beside the first
	resend     = time.Second            // until the same one is asked again
	tries      = 2                      // of each server
	shunned    = 10 * time.Second       // for which one that failed is asked last
	failureTTL = 5 * time.Second        // for which it is known that nobody answers
	lookAgain  = time.Second            // between looks at the list of servers
)

// ErrBusy is the error of [Forwarder.Ask] that is no fault of a server.
var ErrBusy = errors.New("too many questions are under way")

// A MissingError says that there is nobody to ask. Its text says why.
type MissingError struct{ Why string }

func (e *MissingError) Error() string { return e.Why }

// A Question is what to ask, in class IN. It is comparable.
type Question struct {
	Name     string // fully qualified, in lower case
	Type     uint16
	DNSSEC   bool // its records are wanted, too (the bit DO)
	Checking bool // validation is not wanted (the bit CD)
}

// A Forwarder asks others. It is safe for concurrent use.
type Forwarder struct {
	opts  Options
	cache *cache
	count *counters
	slots chan struct{} // one for each question that is under way or waits

	mu      sync.Mutex
	flights map[Question]*flight // guarded by mu
	looked  time.Time            // guarded by mu; when Servers was called last
	missing string               // guarded by mu
	servers []*server            // guarded by mu; never changed in place
	nonces  map[string]*server   // guarded by mu; who was sent the probe of that name
}

// A server is one that may be asked.
type server struct {
	address netip.AddrPort
	name    string // of its probe

	// Guarded by the Forwarder's mu.
	probed  bool          // it has been sent its probe, and has answered since
	shunned time.Time     // it is asked last until then
	looped  chan struct{} // closed when it leads back to us
	isLoop  bool
}

// A flight is a question that is being asked.
type flight struct {
	done chan struct{} // closed when the others are set
	msg  *dns.Msg
	err  error
}

// New returns a forwarder. It does nothing until it is asked.
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

// Cached returns the answer to a question if it is known. The message is the caller's;
// its TTLs are what is left of them.
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

// Reserve takes the room of a question that is not known, and reports whether there is
// any; without, [ErrBusy] is the answer to it. Release gives it back.
func (f *Forwarder) Reserve() bool {
	select {
	case f.slots <- struct{}{}:
		return true
	default:
		f.count.refused.Inc()
		return false
	}
}

// Release gives back what [Forwarder.Reserve] took.
func (f *Forwarder) Release() { <-f.slots }

// Ask asks, and blocks until there is an answer or it is clear that there is none. The
// message is shared and must not be changed; its Rcode may be any. An error is a
// [*MissingError] or says who did not answer and why.
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

// errSilent is when a server did not answer in time.
var errSilent = errors.New("no answer in time")

func (f *Forwarder) keep(q Question, flight *flight) {
	switch {
	case flight.err == nil:
		f.cache.put(q, flight.msg, nil, lifetime(flight.msg), time.Now())
	case errors.Is(flight.err, errSilent):
		f.cache.put(q, nil, flight.err, failureTTL, time.Now())
	}
}

// list returns whom to ask, those that failed last. mu is held.
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
		case s.isLoop:
			loops = s.address.String()
		case now.Before(s.shunned):
			later = append(later, s)
		default:
			order = append(order, s)
		}
	}
	missing = f.missing
	if loops != "" {
		missing = "the upstream resolver " + loops + " asks this server in turn; name another one with --cluster-dns-upstream"
	}
	return append(order, later...), missing
}

// refresh looks which servers there are. mu is held.
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
		s := &server{
			address: a, looped: make(chan struct{}),
			name: strconv.FormatUint(rand.Uint64(), 36) + "." + strconv.FormatUint(rand.Uint64(), 36) + ".",
		}
		f.servers = append(f.servers, s)
		f.nonces[s.name] = s
	}
	f.opts.Log.Info("upstream resolvers", "servers", found, "missing", f.missing)
}

// Looped reports whether a question that we are asked is one of our own, which has gone
// round. It is cheap for all others.
func (f *Forwarder) Looped(name string, kind uint16) bool {
	if kind != dns.TypeHINFO {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.nonces[strings.ToLower(name)]
	if s == nil {
		return false
	}
	if !s.isLoop {
		s.isLoop = true
		close(s.looped)
		f.opts.Log.Error("an upstream resolver asks this server what it is asked by it, and is left out; name another one with --cluster-dns-upstream", "server", s.address)
	}
	return true
}

// message returns what is sent.
func (q Question) message() *dns.Msg {
	m := &dns.Msg{Question: []dns.Question{{Name: q.Name, Qtype: q.Type, Qclass: dns.ClassINET}}}
	m.Id, m.RecursionDesired, m.CheckingDisabled = dns.Id(), true, q.Checking
	m.SetEdns0(maxUDP, q.DNSSEC)
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
	silent := map[*server]time.Time{} // since when a server owes us an answer
	start := func() {
		s := servers[started%len(servers)]
		if started++; silent[s].IsZero() {
			silent[s] = time.Now()
		}
		f.probe(group, s)
		if group.Go(func(ctx context.Context) {
			m, err := f.askOne(ctx, s, q)
			results <- result{s, m, err}
		}) {
			running++ // otherwise ctx is over
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
			if r.err == nil {
				unhelpful = r.msg
			} else if err := fmt.Errorf("%s: %w", r.server.address, r.err); !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
				errs = append(errs, err)
			}
			// A server that said no, or can't be reached, says so again.
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

// cmpErr is what is wrong with an answer that does not help.
func cmpErr(err error, m *dns.Msg) error {
	if err == nil {
		err = errors.New(dns.RcodeToString[m.Rcode])
	}
	return err
}

// helpful reports whether an answer is one, and not that there is none.
func helpful(m *dns.Msg) bool {
	return m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError
}

// note remembers how a server did.
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

// askOne asks one server, unless it leads back to us.
func (f *Forwarder) askOne(ctx context.Context, s *server, q Question) (*dns.Msg, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	watch := run.NewGroup(ctx, 0)
	watch.Go(func(ctx context.Context) {
		select {
		case <-s.looped:
			cancel(errLoop)
		case <-done:
		}
	})
	f.count.requests.Inc()
	began := time.Now()
	m, err := f.opts.Exchange(ctx, s.address, q.message())
	f.count.duration.Observe(time.Since(began).Seconds())
	close(done)
	watch.Wait()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return m, err
}

var errLoop = errors.New("it asks this server in turn")

// probe sends a server the question that must not come back, if that is due. Nobody
// waits for the answer.
func (f *Forwarder) probe(group *run.Group, s *server) {
	f.mu.Lock()
	due := !s.probed
	s.probed = true
	f.mu.Unlock()
	if due {
		group.Go(func(ctx context.Context) {
			_, _ = f.opts.Exchange(ctx, s.address, Question{Name: s.name, Type: dns.TypeHINFO}.message())
		})
	}
}
