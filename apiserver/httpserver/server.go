package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/blocking"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/internal/h2"
	"github.com/sampan-io/sampan/internal/run"
)

// Bounds on a client's requests and holdings, beside those of pace.go and package fairness.
const (
	maxBody   = 3 << 20  // bytes of a body, as in Kubernetes
	maxHeader = 64 << 10 // bytes of a request's headers

	// Requests of one HTTP/2 connection at a time, watches included; Go's default. Clients that need more open another
	// connection. Requests that were reset and still run count, up to twice as many (CVE-2023-44487).
	maxStreams = 250

	// Bytes of bodies that are received before they are read, of one HTTP/2 connection and of one request.
	maxUnread       = 256 << 10
	maxUnreadStream = 128 << 10

	lastFlush = 100 * time.Millisecond
)

// The total of all levels but that of administrators; package priority divides the first, package fairness the
// others.
const (
	mostInFlight   = 600       // requests that are executed; as upstream
	inFlightEach   = 50        // of them for each processor: more make all of them slower
	bodyMemory     = 128 << 20 // bytes of request bodies
	maxWatches     = 30_000
	maxConnects    = 2_000 // logs, proxied requests and the like
	maxSlowAnswers = 400
	newConnections = 4 // of so many connections one may be without a request
)

// defaultInFlight returns how many requests are executed at the same time.
func defaultInFlight() int { return min(inFlightEach*runtime.GOMAXPROCS(0), mostInFlight) }

// A Server serves requests over HTTP. It is safe for concurrent use.
type Server struct {
	opts      Options
	objects   *operation.Operations
	anonymous *auth.User
	metrics   *metrics
	slis      slis
	started   time.Time

	// What requests share and wait for.
	limits      *fairness.Limits
	priority    *priority.Dispatcher
	rules       atomic.Pointer[priority.User] // of the last user of a request without a connection of ours; may be nil
	evaluations evaluations                   // the turns of requests that evaluate expressions over many objects
	waiters     *blocking.Waiters             // where blocking reads wait

	// The life of the server: ready is closed and stopping set by Run.
	ready    chan struct{}
	streams  context.Context //nolint:containedctx // the life of watches and streams, ended by Run before that of other requests
	endAll   context.CancelFunc
	stopping atomic.Bool
	flying   inflight
}

// New returns a server of objects that has not started; call [Server.Run].
func New(objects *operation.Operations, opts Options) (*Server, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts:    opts,
		objects: objects,
		ready:   make(chan struct{}),
		started: time.Now(),
		limits: fairness.New(fairness.Options{
			Bytes: bodyMemory, LargestBody: 2*maxBody + bodyShare,
			Watches: maxWatches, Streams: maxConnects, Answers: maxSlowAnswers, Connections: opts.MaxConnections,
		}),
		priority:    newDispatcher(opts.MaxInFlight),
		evaluations: newEvaluations(),
		anonymous:   &auth.User{Name: auth.Anonymous, Groups: []string{auth.GroupUnauthenticated}},
		waiters:     newWaiters(&opts),
	}
	s.metrics = newMetrics(s.limits, s.priority, objects, objectCounts{opts.Catalog, opts.Store})
	if opts.Audit != nil {
		if err := s.Measure(opts.Audit); err != nil {
			return nil, err
		}
	}
	s.streams, s.endAll = context.WithCancel(context.Background()) //nolint:forbidigo // ended by Run; a watch may come before
	return s, nil
}

// Ready is closed when the listeners are served.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Handler returns Run's handler, for use behind other listeners.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// HandlerAs returns Run's handler for one user, who is believed to be that: for parts of this process that read documents,
// such as those of discovery.
func (s *Server) HandlerAs(user auth.User) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveAs(w, r, &user) })
}

// Run serves the listeners until ctx is over. Then watches and streams are ended,
// other requests in flight are finished, for at most Options.Grace, and every
// connection is closed. Run may be called once.
func (s *Server) Run(ctx context.Context) error {
	defer s.endAll()
	srv := &http.Server{
		Handler:           s.Handler(),
		TLSConfig:         s.tlsConfig(),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       connContext,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: maxUnread,
			MaxReceiveBufferPerStream:     maxUnreadStream,
		},
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
	h2.Configure(srv)
	g := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer g.Stop()
	ended := make(chan error, len(s.opts.Listeners))
	all := &connections{limits: s.limits, maxNew: max(s.opts.MaxConnections/newConnections, 1)}
	for _, l := range s.opts.Listeners {
		g.Go(func(context.Context) { ended <- serveOn(srv, countedListener{l, all}) })
	}
	close(s.ready)
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-ended:
	}
	s.stop(context.WithoutCancel(ctx), srv, g)
	return failure
}

func serveOn(srv *http.Server, l net.Listener) error {
	err := srv.ServeTLS(l, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", l.Addr(), err)
}

// stop ends requests in order: new ones are refused, watches end, and stop waits for the rest.
func (s *Server) stop(ctx context.Context, srv *http.Server, g *run.Group) {
	s.stopping.Store(true)
	s.endAll()
	shutdown, closeNow := context.WithCancel(ctx)
	defer closeNow()
	g.Go(func(context.Context) {
		// This closes the listeners at once and connections as they become idle. It gives HTTP/2
		// clients a second to close, which need not be waited for: all answers are written by then.
		_ = srv.Shutdown(shutdown)
	})
	wait, cancel := context.WithTimeout(ctx, s.opts.Grace)
	defer cancel()
	if n := s.flying.wait(wait); n > 0 {
		s.opts.Log.WarnContext(ctx, "requests were aborted at shutdown", "requests", n)
	}
	pause := time.NewTimer(lastFlush) // for the last bytes of the last answers
	defer pause.Stop()
	<-pause.C
	closeNow()
	if err := srv.Close(); err != nil {
		s.opts.Log.DebugContext(ctx, "closing connections", "err", err)
	}
}

func (s *Server) tlsConfig() *tls.Config {
	if s.opts.TLS == nil {
		return nil
	}
	c := s.opts.TLS.Clone()
	c.MinVersion = tls.VersionTLS13
	c.NextProtos = []string{"h2", "http/1.1"}
	return c
}

// inflight counts requests and lets one goroutine wait until there are none.
type inflight struct {
	n    atomic.Int64
	none atomic.Pointer[run.Bell]
}

func (f *inflight) enter() { f.n.Add(1) }

func (f *inflight) leave() {
	if f.n.Add(-1) > 0 {
		return
	}
	if c := f.none.Load(); c != nil {
		c.Ring()
	}
}

// wait blocks until no request is left or ctx is over, and returns how many are.
func (f *inflight) wait(ctx context.Context) int64 {
	c := run.NewBell()
	f.none.Store(&c)
	for {
		n := f.n.Load()
		if n == 0 {
			return 0
		}
		select {
		case <-c:
		case <-ctx.Done():
			return f.n.Load()
		}
	}
}
