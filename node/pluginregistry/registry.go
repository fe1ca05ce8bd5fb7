package pluginregistry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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

// maxPlugins bounds how many plug-ins are followed.
const maxPlugins = 256

// pauses are those between tries to register, as in kubelet.
var pauses = run.Backoff{First: 500 * time.Millisecond, Max: 2 * time.Minute} //nolint:gochecknoglobals // a constant

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
	inode uint64
	time  syscall.Timespec
}

// A socket is one by which a plug-in registers.
type socket struct {
	identity
	cancel context.CancelFunc
	ended  chan struct{} // closed when its plug-in has been removed
}

// Run registers the plug-ins whose sockets are in the directory, and removes those whose sockets are not there any more, until
// ctx is cancelled.
func (r *Registry) Run(ctx context.Context) error {
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	dir := filepath.Join(string(r.opts.Sockets), directory)
	known := map[string]*socket{}
	return filewatch.Follow(ctx, []string{dir + "/"}, func() { r.scan(ctx, group, dir, known) })
}

func (r *Registry) scan(ctx context.Context, group *run.Group, dir string, known map[string]*socket) {
	found := map[string]identity{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.opts.Log.Warn("plug-ins not listed", "dir", dir, "err", err)
		return
	}
	for _, e := range entries {
		if e.Type()&os.ModeSocket == 0 || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it is gone again
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			found[e.Name()] = identity{s.Ino, s.Mtim}
		}
	}
	for name, s := range known {
		if id, there := found[name]; !there || id != s.identity {
			s.cancel()
			if !there {
				delete(known, name)
			}
		}
	}
	for name, id := range found {
		old := known[name]
		if old != nil && old.identity == id {
			continue
		}
		if old == nil && len(known) >= maxPlugins {
			r.opts.Log.Warn("plug-in ignored: there are too many", "socket", name, "limit", maxPlugins)
			continue
		}
		limited, cancel := context.WithCancel(ctx)
		s := &socket{identity: id, cancel: cancel, ended: make(chan struct{})}
		known[name] = s
		if !group.Go(func(context.Context) {
			defer close(s.ended)
			defer cancel()
			if old != nil {
				<-old.ended
			}
			run.Shield(r.opts.Log, func() { r.keep(ctx, limited, name) }, "socket", name)
		}) {
			cancel()
		}
	}
}

// keep registers a plug-in, and removes it when its socket is removed, which cancels ctx. It stays if the agent ends, which
// cancels parent.
func (r *Registry) keep(parent, ctx context.Context, socket string) {
	path := filepath.Join(string(r.opts.Sockets), directory, socket)
	r.plugins.WithLabelValues(path, desired).Set(1)
	defer r.plugins.DeletePartialMatch(prometheus.Labels{"socket_path": path})
	for failures := 1; ctx.Err() == nil; failures++ {
		p, err := r.register(ctx, socket)
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

// register asks a plug-in who it is, registers it, and reports to it whether that succeeded.
func (r *Registry) register(ctx context.Context, socket string) (Plugin, error) {
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
		return p, fmt.Errorf("failed to get plugin info using RPC GetInfo at socket %s, err: %w", socket, err)
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
		r.remove(context.WithoutCancel(ctx), p)
		return p, fmt.Errorf("failed to send registration status: %w", err)
	}
	r.opts.Log.InfoContext(ctx, "plug-in registered", "type", p.Type, "plugin", Shorten(p.Name), "socket", p.Endpoint)
	r.opts.Handlers[p.Type].Registered(p)
	return p, nil
}
