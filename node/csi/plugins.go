package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sampan-io/sampan/internal/filewatch"
	"github.com/sampan-io/sampan/internal/run"
)

// The time limits of registration, as in kubelet.
const (
	infoLimit   = 10 * time.Second
	notifyLimit = 5 * time.Second
)

// A driver is a registered driver.
type driver struct {
	name, endpoint string
	socket         string // of its registration; name in plugins_registry
	path           string // of its own socket, below Root
	version        *version.Version
	abilities      map[csi.NodeServiceCapability_RPC_Type]bool
}

func (d *driver) can(what csi.NodeServiceCapability_RPC_Type) bool { return d.abilities[what] }

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

// follow registers the plug-ins whose sockets are in the directory, and removes those whose sockets are not there any more.
func (m *Manager) follow(ctx context.Context, group *run.Group) error {
	dir := filepath.Join(m.opts.Root, "plugins_registry")
	known := map[string]*socket{}
	return filewatch.Follow(ctx, []string{dir + "/"}, func() { m.scan(ctx, group, dir, known) })
}

func (m *Manager) scan(ctx context.Context, group *run.Group, dir string, known map[string]*socket) {
	found := map[string]identity{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		m.opts.Log.Warn("plug-ins not listed", "dir", dir, "err", err)
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
			m.opts.Log.Warn("plug-in ignored: there are too many", "socket", name, "limit", maxPlugins)
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
			run.Shield(m.opts.Log, func() { m.keep(ctx, limited, name) }, "socket", name)
		}) {
			cancel()
		}
	}
}

// keep registers a plug-in, and removes it when its socket is removed, which cancels ctx. It stays if the agent stops, which
// cancels parent.
func (m *Manager) keep(parent, ctx context.Context, socket string) {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := m.register(ctx, socket)
		if err == nil {
			<-ctx.Done()
			break
		}
		if ctx.Err() == nil {
			m.opts.Log.WarnContext(ctx, "plug-in not registered, will try again", "socket", socket, "failures", failures, "err", err)
		}
		run.Pause(ctx, pauses.Pause(failures))
	}
	name := m.remove(socket)
	if name == "" || parent.Err() != nil {
		return
	}
	m.opts.Log.InfoContext(ctx, "CSI driver removed", "driver", name)
	limited, cancel := context.WithTimeout(parent, callLimit)
	defer cancel()
	if err := m.opts.Uninstall(limited, name); err != nil && parent.Err() == nil {
		m.opts.Log.WarnContext(ctx, "CSI driver not removed from the objects of the node", "driver", name, "err", err)
	}
}

// remove forgets the driver of a registration socket, and returns its name.
func (m *Manager) remove(socket string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, d := range m.drivers {
		if d.socket == socket {
			delete(m.drivers, name)
			return name
		}
	}
	return ""
}

// connect returns a connection to a socket below Root. Nothing is sent until it is used.
func (m *Manager) connect(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) { return m.dial(ctx, path) }),
		grpc.WithAuthority("localhost"), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(64<<10), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
}

// register asks a plug-in who it is, installs it, and says to it whether that succeeded.
func (m *Manager) register(ctx context.Context, socket string) error {
	conn, err := m.connect(filepath.Join("plugins_registry", socket))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	limited, cancel := context.WithTimeout(ctx, infoLimit)
	info, err := client.GetInfo(limited, &registration.InfoRequest{})
	cancel()
	if err != nil {
		return fmt.Errorf("failed to get plugin info using RPC GetInfo at socket %s, err: %w", socket, err)
	}
	failure := m.install(ctx, socket, info)
	answer := &registration.RegistrationStatus{PluginRegistered: failure == nil}
	if failure != nil {
		answer.Error = failure.Error()
	}
	limited, cancel = context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	_, err = client.NotifyRegistrationStatus(limited, answer)
	if failure == nil && err != nil {
		m.remove(socket)
		err = fmt.Errorf("failed to send registration status: %w", err)
	} else if failure != nil {
		err = failure
	}
	if err == nil {
		m.opts.Log.InfoContext(ctx, "CSI driver registered", "driver", info.GetName(), "socket", info.GetEndpoint())
		m.announce()
	}
	return err
}

// announce wakes what waits for a driver.
func (m *Manager) announce() {
	m.mu.Lock()
	close(m.wake)
	m.wake = make(chan struct{})
	m.mu.Unlock()
	m.opts.Registered()
}

// install checks what a plug-in has said, and makes it a driver. Errors are for the plug-in.
func (m *Manager) install(ctx context.Context, socket string, info *registration.PluginInfo) error {
	if info.GetType() != registration.CSIPlugin {
		return fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: %s at socket %s", info.GetType(), socket)
	}
	endpoint := info.GetEndpoint()
	if endpoint == "" {
		endpoint = filepath.Join(m.opts.Root, "plugins_registry", socket)
	}
	d := &driver{name: info.GetName(), endpoint: endpoint, socket: socket}
	if err := m.reserve(d, info.GetSupportedVersions()); err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err)
	}
	about, err := m.ask(ctx, d)
	if err == nil {
		err = m.opts.Install(ctx, about)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.coming, d.name)
	if err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err)
	}
	m.drivers[d.name] = d
	return nil
}

// reserve takes the name of a driver, which another socket may have (csi-C5).
func (m *Manager) reserve(d *driver, versions []string) (err error) {
	if !driverName.MatchString(d.name) {
		return fmt.Errorf("name %q of the CSI driver must have at most 63 letters, digits, - and ., and begin and end with a letter or digit", shorten(d.name))
	}
	fault := func(format string, args ...any) error {
		return fmt.Errorf("validation failed for CSI Driver %s at endpoint %s: %w", d.name, shorten(d.endpoint), fmt.Errorf(format, args...))
	}
	if d.path, err = m.local(d.endpoint); err != nil {
		return fault("%w", err)
	}
	if len(versions) == 0 {
		return fault("%s: ValidatePlugin for CSI driver %q failed. Plugin returned an empty list for supported versions", pluginName, d.name)
	}
	if d.version, err = version.HighestSupportedVersion(versions); err != nil {
		return fault("%s: ValidatePlugin for CSI driver %q failed. None of the versions specified are supported. err=%w", pluginName, d.name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.drivers[d.name]; old != nil && old.socket != d.socket && !old.version.LessThan(d.version) {
		return fault("%s: ValidatePlugin for CSI driver %q failed. Another driver with the same name is already registered with a higher supported version: %q", pluginName, d.name, old.version)
	}
	if m.coming[d.name] != nil {
		return fault("another driver with the same name is being registered")
	}
	m.coming[d.name] = d
	return nil
}

// shorten returns text from a plug-in for a message.
func shorten(text string) string {
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}

// ask asks a driver what it says about the node, and what it can do.
func (m *Manager) ask(ctx context.Context, d *driver) (Info, error) {
	var info *csi.NodeGetInfoResponse
	err := m.call(ctx, d, func(ctx context.Context, node csi.NodeClient) error {
		var err error
		if info, err = node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}); err != nil {
			return err
		}
		caps, err := node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
		d.abilities = map[csi.NodeServiceCapability_RPC_Type]bool{}
		for _, c := range caps.GetCapabilities() {
			d.abilities[c.GetRpc().GetType()] = true
		}
		return err
	})
	if err != nil {
		return Info{}, err
	}
	about := Info{Driver: d.name, NodeID: info.GetNodeId(), MaxVolumes: info.GetMaxVolumesPerNode(), Topology: info.GetAccessibleTopology().GetSegments()}
	return about, about.check()
}

func (i Info) check() error {
	switch {
	case i.NodeID == "":
		return errors.New("error adding CSI driver node info: driverNodeID must not be empty")
	case len(i.NodeID) > 256:
		return fmt.Errorf("error adding CSI driver node info: driverNodeID has %d characters, want at most 256", len(i.NodeID))
	case i.MaxVolumes < 0:
		return fmt.Errorf("error adding CSI driver node info: max_volumes_per_node must be >= 0, got %d", i.MaxVolumes)
	case len(i.Topology) > maxTopology:
		return fmt.Errorf("error adding CSI driver node info: the topology has %d keys, want at most %d", len(i.Topology), maxTopology)
	}
	for k, v := range i.Topology {
		if faults := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(faults) > 0 {
			return fmt.Errorf("error adding CSI driver node info: topology %s: %s", shorten(k), faults[0])
		}
	}
	return nil
}

// call calls a driver, within a time limit.
func (m *Manager) call(ctx context.Context, d *driver, f func(ctx context.Context, node csi.NodeClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	conn, err := m.connect(d.path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := f(ctx, csi.NewNodeClient(conn)); err != nil {
		return brief(err)
	}
	return nil
}

// brief bounds the message of an error that a driver has returned; it goes into events.
func brief(err error) error {
	s, ok := status.FromError(err)
	if !ok || len(s.Message()) <= maxText {
		return err
	}
	return status.Error(s.Code(), s.Message()[:maxText]+"…")
}

// maxText bounds, in bytes, what drivers say in events, which have 1,024.
const maxText = 768
