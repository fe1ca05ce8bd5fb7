package health

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// Options configures a [Server].
type Options struct {
	// Networks of the addresses of this host at which ports are opened; none means all addresses.
	Networks []netip.Prefix

	Log *slog.Logger // nil means slog.Default
}

// A Server implements [proxy.HealthChecks]. Set may be called while Run runs, from one goroutine.
type Server struct {
	opts    Options
	ready   chan struct{}
	healthy func() bool // nil means always

	mu     sync.Mutex
	life   context.Context                //nolint:containedctx // guarded by mu; of Run, and nil before and after
	checks map[types.NamespacedName]*port // guarded by mu
}

// A port is the health-check node port of a Service.
type port struct {
	service types.NamespacedName
	number  uint16
	local   atomic.Int64
	group   *run.Group // of its listeners
}

// The back-off after a port can't be opened.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// NewServer returns a server that has not started; call [Server.Run].
func NewServer(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Server{opts: o, ready: make(chan struct{}), checks: map[types.NamespacedName]*port{}}
}

// Ready is closed when Set may be called.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Judge sets the health of the proxy: while healthy returns false, every check fails. It must be
// called before Run.
func (s *Server) Judge(healthy func() bool) { s.healthy = healthy }

// Run serves until ctx is cancelled, then closes all ports.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	s.life = ctx
	s.mu.Unlock()
	close(s.ready)
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = nil
	for service, p := range s.checks {
		p.group.Stop()
		delete(s.checks, service)
	}
	return nil
}

// Set implements [proxy.HealthChecks].
func (s *Server) Set(service types.NamespacedName, h *proxy.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.checks[service]
	if old != nil && h != nil && old.number == h.Port {
		old.local.Store(int64(h.Local))
		return
	}
	if old != nil {
		old.group.Stop()
		delete(s.checks, service)
	}
	if h == nil || s.life == nil {
		return
	}
	p := &port{service: service, number: h.Port, group: run.NewGroup(s.life, 0)}
	p.local.Store(int64(h.Local))
	s.checks[service] = p
	p.group.Go(func(ctx context.Context) { s.serve(ctx, p) })
}

// serve serves a port until ctx is cancelled.
func (s *Server) serve(ctx context.Context, p *port) {
	ls, err := s.listen(ctx, p.number)
	for failures := 1; err != nil; failures++ {
		if failures == 1 {
			s.opts.Log.WarnContext(ctx, "cannot open a health-check node port; retrying", "service", p.service, "port", p.number, "err", err)
		}
		if !run.Pause(ctx, run.Backoff{First: firstPause, Max: lastPause}.Pause(failures)) {
			return
		}
		ls, err = s.listen(ctx, p.number)
	}
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, l := range ls {
		s.opts.Log.InfoContext(ctx, "health-check node port listens", "service", p.service, "address", l.Addr(), "for", "load balancers")
		g.Go(func(ctx context.Context) {
			if err := Serve(ctx, l, s.handler(p)); err != nil {
				s.opts.Log.ErrorContext(ctx, "serving a health-check node port", "service", p.service, "port", p.number, "err", err)
			}
		})
	}
	g.Wait()
}

// Serve serves on l until ctx is cancelled, then closes it and every connection.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// answer is the body of an answer.
type answer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

func (s *Server) handler(p *port) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := answer{LocalEndpoints: int(p.local.Load()), ServiceProxyHealthy: s.healthy == nil || s.healthy()}
		a.Service.Namespace, a.Service.Name = p.service.Namespace, p.service.Name
		write(w, a.LocalEndpoints > 0 && a.ServiceProxyHealthy, a, func(h http.Header) {
			h.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.LocalEndpoints))
		})
	})
}

// write answers with 200 or 503.
func write(w http.ResponseWriter, ok bool, body any, more func(http.Header)) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	if more != nil {
		more(h)
	}
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	}
	text, err := json.MarshalIndent(body, "", "\t")
	if err != nil {
		code = http.StatusInternalServerError
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}

// listen opens a port on the addresses of Options.Networks.
func (s *Server) listen(ctx context.Context, number uint16) ([]net.Listener, error) {
	var lc net.ListenConfig
	if len(s.opts.Networks) == 0 {
		l, err := lc.Listen(ctx, "tcp", ":"+strconv.Itoa(int(number)))
		return []net.Listener{l}, err
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var ls []net.Listener
	for _, text := range all {
		n, err := netip.ParsePrefix(text.String())
		if err != nil || !slices.ContainsFunc(s.opts.Networks, func(m netip.Prefix) bool { return m.Contains(n.Addr()) }) {
			continue
		}
		l, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(n.Addr(), number).String())
		if err != nil {
			for _, l := range ls {
				_ = l.Close()
			}
			return nil, err
		}
		ls = append(ls, l)
	}
	if len(ls) == 0 {
		return nil, fmt.Errorf("no address of this host is in %v", s.opts.Networks)
	}
	return ls, nil
}
