package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/dns/forward"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures a [Server]. Sockets and Upstream are required, and Caches or Client.
type Options struct {
	// Caches are the caches to read from. Nil means separate caches over Client, which keep only
	// the parts of objects that names need.
	Caches *cache.Shared
	Client client.Interface

	// Sockets receive the questions. Run closes them.
	Sockets *Sockets

	// Upstream returns the servers for names outside of the cluster. If there are none, missing
	// says why, for users. It must be fast.
	Upstream func() (servers []netip.AddrPort, missing string)

	Domain string        // of the cluster; "" means "cluster.local"
	TTL    time.Duration // of the cluster's records; 0 means 5 s

	// Networks are the networks of pods and Services; the zone has the names of their addresses.
	Networks []netip.Prefix

	// Web are the listeners that serve /metrics, /ready and /health over HTTP. Run closes them.
	Web []net.Listener

	Version string // of this program, for its metrics; "" means unknown

	Log *slog.Logger // nil means slog.Default
}

// A Server answers questions while Run runs.
type Server struct {
	opts     Options
	zone     *zone.Zone
	upstream *forward.Forwarder
	count    *counters
	talks    conversations

	// Read their objects only with the functions of follow.go.
	services, slices, namespaces *cache.Cache[client.Object]
	caches                       run.Stage

	complete chan struct{} // closed when the zone matches the cluster at the start
	wake     run.Bell

	mu    sync.Mutex
	dirty map[types.NamespacedName]bool // guarded by mu; Services to update
}

// New returns a server that has not started; call [Server.Run].
func New(o Options) (*Server, error) {
	if o.Caches == nil && o.Client == nil || o.Sockets == nil || o.Upstream == nil {
		return nil, errors.New("dns: Options.Sockets, Upstream, and Caches or Client are required")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Server{
		opts: o, complete: make(chan struct{}), wake: run.NewBell(),
		talks: conversations{open: map[*conversation]bool{}},
		dirty: map[types.NamespacedName]bool{},
	}
	var own []netip.Addr
	for _, at := range o.Sockets.Addrs() {
		own = append(own, at.Addr())
	}
	var err error
	s.zone, err = zone.New(zone.Options{Domain: o.Domain, TTL: o.TTL, Server: own, Networks: o.Networks}, uint32(time.Now().Unix()))
	if err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	if s.upstream, err = forward.New(forward.Options{Servers: o.Upstream, Own: o.Sockets.Addrs(), Log: o.Log}); err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	s.count = newCounters(s)
	s.follow()
	return s, nil
}

// Ready is closed when the zone matches the cluster as it was at the start, and questions are
// answered.
func (s *Server) Ready() <-chan struct{} { return s.complete }

// Run answers questions until ctx is cancelled, then returns nil. It returns an error if a socket
// fails. While the API server is unreachable it goes on with the last state. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	first := append(run.Stage{{Name: "questions", Run: s.serve}}, s.caches...)
	if len(s.opts.Web) > 0 {
		first = append(first, run.Task{Name: "web", Run: s.serveWeb})
	}
	return run.Stages(ctx, first, run.Stage{{Name: "zone", Run: s.keep}})
}
