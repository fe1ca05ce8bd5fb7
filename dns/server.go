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
	// Caches are what it reads. Nil means caches of its own, over Client, which hold of
	// each object only what names need.
	Caches *cache.Shared
	Client client.Interface

	// Sockets are where it is asked. Run closes them.
	Sockets *Sockets

	// Upstream returns whom to ask for names outside of the cluster; without any,
	// missing says why, for users. It must be quick.
	Upstream func() (servers []netip.AddrPort, missing string)

	Domain string        // of the cluster; "" means "cluster.local"
	TTL    time.Duration // of the cluster's records; 0 means 5 s

	// Networks are those of pods and services: the names of their addresses are ours.
	Networks []netip.Prefix

	// Web is where /metrics, /ready and /health are served over HTTP; none means
	// nowhere. Run closes them.
	Web []net.Listener

	Version string // of this program, for its metrics; "" means unknown

	Log *slog.Logger // nil means slog.Default
}

// A Server answers until it is told to stop.
type Server struct {
	opts     Options
	zone     *zone.Zone
	upstream *forward.Forwarder
	count    *counters
	talks    conversations

	// What they hold is read with the functions of follow.go alone.
	services, slices, namespaces *cache.Cache[client.Object]
	caches                       run.Stage

	complete chan struct{} // closed when the zone is what the cluster was at the start
	wake     chan struct{} // capacity 1

	mu    sync.Mutex
	dirty map[types.NamespacedName]bool // guarded by mu; Services to look at
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
		opts: o, complete: make(chan struct{}), wake: make(chan struct{}, 1),
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

// Ready is closed when the zone is what the cluster was when the server started, and
// questions are answered.
func (s *Server) Ready() <-chan struct{} { return s.complete }

// Run answers until ctx is over, then returns nil. It returns an error if a socket
// breaks. It goes on while the API server is away, with what it knows. It may be called
// once.
func (s *Server) Run(ctx context.Context) error {
	first := append(run.Stage{{Name: "questions", Run: s.serve}}, s.caches...)
	if len(s.opts.Web) > 0 {
		first = append(first, run.Task{Name: "web", Run: s.serveWeb})
	}
	return run.Stages(ctx, first, run.Stage{{Name: "zone", Run: s.keep}})
}
