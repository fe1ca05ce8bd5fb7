package pluginregistry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sampan-io/sampan/internal/filewatch"
	"github.com/sampan-io/sampan/internal/run"
)

// directory is that of the sockets, below the agent's.
const directory = "plugins_registry"

// The time limits of registration, as in kubelet.
const (
	infoLimit   = 10 * time.Second
	notifyLimit = 5 * time.Second
	removeLimit = 2 * time.Minute
)

// interval is the least time between the beginnings of two registrations at sockets of the same name. A socket that is
// removed and made all the time costs no more writes to the API server then than with kubelet, which looks for changes
// at this interval.
const interval = time.Second

// maxPlugins bounds how many plug-ins are followed.
const maxPlugins = 256

// pauses are those between tries to register, as in kubelet.
var pauses = run.Backoff{First: 500 * time.Millisecond, Max: 2 * time.Minute}

// A Plugin is what a plug-in says about itself.
type Plugin struct {
	Socket   string // of its registration; name in plugins_registry
	Type     string // such as CSIPlugin
	Name     string
	Endpoint string   // path of its own socket, as it sees it; not checked, see [Sockets.Local]
	Versions []string // of the API for its type, or names of gRPC services
}

// A Handler knows the plug-ins of one type. Calls for different sockets may overlap.
type Handler interface {
	// Register checks a plug-in and makes it usable. The error is for the plug-in.
	Register(ctx context.Context, p Plugin) error
	// Registered is called when the plug-in knows that it is registered. It must not block.
	Registered(p Plugin)
	// Remove ends the use of a plug-in whose socket has been removed. It is not called when the agent ends.
	Remove(ctx context.Context, p Plugin)
}

// Options configures a [Registry]. All fields are required.
type Options struct {
	Sockets  Sockets
	Handlers map[string]Handler // by type of the plug-in
	Log      *slog.Logger
}

// A Registry registers plug-ins.
type Registry struct {
	opts    Options
	plugins *prometheus.GaugeVec
}

// New returns a registry that has not started.
func New(opts Options) *Registry {
	return &Registry{opts: opts, plugins: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "plugin_manager_total_plugins", Help: "Plug-ins with a socket for their registration, and registered ones.",
	}, []string{"socket_path", "state"})}
}

// Metrics returns the metrics of the registry, under the names of upstream's kubelet.
func (r *Registry) Metrics() prometheus.Collector { return r.plugins }

// The states of a plug-in, as metrics name them.
const (
	desired = "desired_state_of_world"
	actual  = "actual_state_of_world"
)

// Open makes the directories of sockets.
func (r *Registry) Open() error {
	for _, dir := range []string{"plugins", directory} {
		if err := os.MkdirAll(filepath.Join(string(r.opts.Sockets), dir), 0o750); err != nil {
			return fmt.Errorf("plug-ins: %w", err)
		}
	}
	return nil
}

// An identity distinguishes a socket from another one that had its name before.
type identity struct {
	inode   uint64
	changed int64 // Unix time in nanoseconds
}

// A place is the state of one name in the directory. Several sockets may have the name, one after another. One goroutine
// registers and removes the plug-ins of all of them: it registers one after the removal of the one before has ended,
// because both write the same objects.
type place struct {
	socket *identity          // the present socket; nil if there is none
	cancel context.CancelFunc // ends the registration of the socket before, or of this one once it has begun
}

// places has the names of the sockets in the directory, and of removed ones whose plug-ins are still being removed.
type places struct {
	mu    sync.Mutex
	names map[string]*place // guarded by mu, with what it points to
}

// Run registers the plug-ins whose sockets are in the directory, and removes those whose sockets are not there any
// more, until ctx is cancelled.
func (r *Registry) Run(ctx context.Context) error {
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	dir := filepath.Join(string(r.opts.Sockets), directory)
	all := &places{names: map[string]*place{}}
	return filewatch.Follow(ctx, []string{dir + "/"}, func() {
		found, err := list(dir)
		if err != nil {
			r.opts.Log.Warn("plug-ins not listed", "dir", dir, "err", err)
			return
		}
		added, ignored := all.update(found)
		if len(ignored) > 0 {
			r.opts.Log.Warn("plug-ins ignored: there are too many", "sockets", len(ignored), "one", ignored[0], "limit", maxPlugins)
		}
		for _, name := range added {
			group.Go(func(ctx context.Context) { r.follow(ctx, all, name) })
		}
	})
}

// list returns the sockets in a directory.
func list(dir string) (map[string]identity, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]identity{}
	for _, e := range entries {
		if e.Type()&os.ModeSocket == 0 || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it is gone again
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			found[e.Name()] = identity{s.Ino, info.ModTime().UnixNano()}
		}
	}
	return found, nil
}

// update records which sockets there are, and ends the registrations of others. It returns the names that need a
// goroutine ([Registry.follow]), and the names without a place.
func (s *places) update(found map[string]identity) (added, ignored []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present := 0
	for name, p := range s.names {
		id, there := found[name]
		if p.socket != nil && (!there || id != *p.socket) {
			p.cancel()
			p.socket = nil
		}
		if there {
			p.socket = &id
			present++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		switch {
		case s.names[name] != nil:
		case present >= maxPlugins || len(s.names) >= 2*maxPlugins: // half of the places may be those of sockets that are gone
			ignored = append(ignored, name)
		default:
			present++
			s.names[name] = &place{socket: new(found[name]), cancel: func() {}}
			added = append(added, name)
		}
	}
	return added, ignored
}

// begin returns a context that is cancelled when the present socket of a name is removed or replaced. If there is none,
// the name loses its place, and begin returns nil.
func (s *places) begin(ctx context.Context, name string) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.names[name]
	if p.socket == nil {
		delete(s.names, name)
		return nil, nil
	}
	limited, cancel := context.WithCancel(ctx)
	p.cancel = cancel
	return limited, cancel
}

// follow registers and removes the plug-ins of the sockets of a name, until there is none.
func (r *Registry) follow(ctx context.Context, all *places, name string) {
	for {
		limited, cancel := all.begin(ctx, name)
		if limited == nil {
			return
		}
		next := time.Now().Add(interval)
		if !run.Shield(r.opts.Log, func() { r.keep(ctx, limited, name) }, "socket", name) {
			<-limited.Done() // another socket may do better
		}
		cancel()
		if !run.Pause(ctx, time.Until(next)) {
			return
		}
	}
}

// keep registers a plug-in, and removes it when its socket is removed, which cancels ctx. It stays if the agent ends,
// which cancels parent.
func (r *Registry) keep(parent, ctx context.Context, socket string) {
	path := filepath.Join(string(r.opts.Sockets), directory, socket)
	r.plugins.WithLabelValues(path, desired).Set(1)
	defer r.plugins.DeletePartialMatch(prometheus.Labels{"socket_path": path})
	for failures := 1; ctx.Err() == nil; failures++ {
		p, err := r.register(parent, ctx, socket)
		if err == nil {
			r.plugins.WithLabelValues(path, actual).Set(1)
			<-ctx.Done()
			r.remove(parent, p)
			return
		}
		if ctx.Err() == nil {
			r.opts.Log.WarnContext(ctx, "plug-in not registered, will try again", "socket", socket, "failures", failures, "err", err)
		}
		run.Pause(ctx, pauses.Pause(failures))
	}
}

// remove has the handler of a plug-in remove it, unless the agent ends.
func (r *Registry) remove(ctx context.Context, p Plugin) {
	if ctx.Err() != nil {
		return
	}
	r.opts.Log.InfoContext(ctx, "plug-in removed", "type", p.Type, "plugin", Shorten(p.Name), "socket", p.Socket)
	limited, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	r.opts.Handlers[p.Type].Remove(limited, p)
}

// register asks a plug-in who it is, registers it, and reports to it whether that succeeded. The end of the agent
// cancels parent.
func (r *Registry) register(parent, ctx context.Context, socket string) (Plugin, error) {
	p := Plugin{Socket: socket}
	conn, err := r.opts.Sockets.Connect(filepath.Join(directory, socket))
	if err != nil {
		return p, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	limited, cancel := context.WithTimeout(ctx, infoLimit)
	info, err := client.GetInfo(limited, &registration.InfoRequest{})
	cancel()
	if err != nil {
		return p, fmt.Errorf("failed to get plugin info using RPC GetInfo at socket %s, err: %w", socket, Brief(err, maxText))
	}
	p.Type, p.Name, p.Endpoint, p.Versions = info.GetType(), info.GetName(), info.GetEndpoint(), info.GetSupportedVersions()
	if p.Endpoint == "" {
		p.Endpoint = filepath.Join(string(r.opts.Sockets), directory, socket)
	}
	var failure error
	if handler := r.opts.Handlers[p.Type]; handler == nil {
		failure = fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: %s at socket %s", Shorten(p.Type), socket)
	} else {
		failure = handler.Register(ctx, p)
	}
	answer := &registration.RegistrationStatus{PluginRegistered: failure == nil}
	if failure != nil {
		answer.Error = failure.Error()
	}
	limited, cancel = context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	_, err = client.NotifyRegistrationStatus(limited, answer)
	switch {
	case failure != nil:
		return p, failure
	case err != nil:
		r.remove(parent, p)
		return p, fmt.Errorf("failed to send registration status: %w", Brief(err, maxText))
	}
	r.opts.Log.InfoContext(ctx, "plug-in registered", "type", p.Type, "plugin", Shorten(p.Name), "socket", p.Endpoint)
	r.opts.Handlers[p.Type].Registered(p)
	return p, nil
}
