package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"k8s.io/apimachinery/pkg/util/validation"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	oldhealthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	oldapi "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

const (
	// wipeDelay is how long a driver may be away before its slices are deleted, as in kubelet: long enough for another pod of
	// the driver to start.
	wipeDelay = 30 * time.Second

	maxInstances = 16  // of one driver
	maxText      = 768 // bytes of what drivers say in events, which have 1,024
)

// wipePauses are those between tries to delete slices, as in kubelet.
var wipePauses = run.Backoff{First: time.Second, Max: 5 * time.Minute}

// A plugin is an instance of a driver. There may be two of them, while one replaces the other.
type plugin struct {
	driver, socket string // name; and of the registration
	endpoint       string
	service        string // [api.DRAPluginService], or the one before
	healthService  string // "": it does not report the health of devices
	conn           *grpc.ClientConn
	connected      bool // guarded by Manager.mu
	cancel         context.CancelFunc
}

// client returns a client of the service of the plug-in.
func (p *plugin) client() api.DRAPluginClient {
	if p.service == api.DRAPluginService {
		return api.NewDRAPluginClient(p.conn)
	}
	return oldapi.V1Beta1ClientWrapper{DRAPluginClient: oldapi.NewDRAPluginClient(p.conn)}
}

func (p *plugin) prepare(ctx context.Context, r *api.NodePrepareResourcesRequest) (*api.NodePrepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return p.client().NodePrepareResources(ctx, r)
}

func (p *plugin) unprepare(ctx context.Context, r *api.NodeUnprepareResourcesRequest) (*api.NodeUnprepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return p.client().NodeUnprepareResources(ctx, r)
}

// driver returns the newest connected instance of a driver, or the newest one.
func (m *Manager) driver(name string) (*plugin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.drivers[name]
	for _, p := range slices.Backward(all) {
		if p.connected {
			return p, nil
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", name)
	}
	return all[len(all)-1], nil
}

// usable reports whether an instance of a driver is connected. The caller holds mu.
func (m *Manager) usable(name string) bool {
	return slices.ContainsFunc(m.drivers[name], func(p *plugin) bool { return p.connected })
}

// Register checks what a plug-in says, and connects to it. Errors are for the plug-in, in kubelet's words.
func (m *Manager) Register(_ context.Context, at pluginregistry.Plugin) error {
	p := &plugin{driver: at.Name, socket: at.Socket, endpoint: at.Endpoint}
	path, err := m.check(p, at.Versions)
	if err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err)
	}
	if p.conn, err = m.sockets().Connect(path, grpc.WithIdleTimeout(0), m.metrics.calls.Measure(p.driver)); err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: create gRPC connection to DRA driver %s plugin at endpoint %s: %w",
			p.driver, pluginregistry.Shorten(p.endpoint), err)
	}
	if err := m.add(p); err != nil {
		_ = p.conn.Close()
		return fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err)
	}
	return nil
}

func (m *Manager) sockets() pluginregistry.Sockets { return pluginregistry.Sockets(m.opts.Root) }

// check checks what a plug-in says, chooses the services, and returns the path of its socket.
func (m *Manager) check(p *plugin, services []string) (string, error) {
	if faults := validation.IsDNS1123Subdomain(p.driver); len(faults) > 0 {
		return "", fmt.Errorf("name %q of the DRA driver: %s", pluginregistry.Shorten(p.driver), faults[0])
	}
	fault := func(format string, args ...any) error {
		return fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: %w", p.driver, pluginregistry.Shorten(p.endpoint), fmt.Errorf(format, args...))
	}
	if len(services) == 0 {
		return "", fault("empty list of supported gRPC services (aka supported versions)")
	}
	known := []string{api.DRAPluginService, oldapi.DRAPluginService}
	i := slices.IndexFunc(services, func(s string) bool { return slices.Contains(known, s) })
	if i < 0 {
		return "", fault("none of services supported by the plugin (%s) are supported by the kubelet (%q)", pluginregistry.Shorten(fmt.Sprintf("%q", services)), known)
	}
	p.service = services[i]
	for _, s := range []string{healthapi.DRAResourceHealthService, oldhealthapi.DRAResourceHealthService} {
		if p.healthService == "" && slices.Contains(services, s) {
			p.healthService = s
		}
	}
	return m.sockets().Local(p.endpoint)
}

func (m *Manager) add(p *plugin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.drivers[p.driver] {
		if other.endpoint == p.endpoint {
			return fmt.Errorf("endpoint %s already registered for DRA driver plugin %s", pluginregistry.Shorten(p.endpoint), p.driver)
		}
	}
	if len(m.drivers[p.driver]) >= maxInstances {
		return fmt.Errorf("DRA driver %s has %d plugins already", p.driver, maxInstances)
	}
	if m.group == nil {
		return errors.New("the node agent is ending")
	}
	started := make(chan struct{})
	group := m.group
	if !group.Go(func(ctx context.Context) {
		ctx, p.cancel = context.WithCancel(ctx)
		close(started)
		defer p.cancel()
		if p.healthService != "" {
			group.Go(func(context.Context) {
				run.Shield(m.opts.Log, func() { m.watchHealth(ctx, p) }, "driver", p.driver)
			})
		}
		run.Shield(m.opts.Log, func() { m.follow(ctx, p) }, "driver", p.driver)
	}) {
		return errors.New("the node agent is ending")
	}
	<-started
	m.drivers[p.driver] = append(m.drivers[p.driver], p)
	m.sync(p.driver)
	return nil
}

// follow records whether a plug-in is connected, until ctx is cancelled.
func (m *Manager) follow(ctx context.Context, p *plugin) {
	defer p.conn.Close()
	for {
		p.conn.Connect()
		state := p.conn.GetState()
		m.mu.Lock()
		if now := state == connectivity.Ready; now != p.connected {
			p.connected = now
			m.sync(p.driver)
		}
		m.mu.Unlock()
		if !p.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// Registered wakes pods that wait for a driver.
func (m *Manager) Registered(pluginregistry.Plugin) { m.opts.Registered() }

// Remove ends the connection to a plug-in whose socket has been removed. The metrics of a driver go with its last plug-in.
func (m *Manager) Remove(_ context.Context, at pluginregistry.Plugin) {
	m.drop(at)
	m.metrics.calls.Remove(at.Name)
}

// registered reports whether a driver has a plug-in.
func (m *Manager) registered(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.drivers[name]) > 0
}

// drop removes a plug-in from those of its driver.
func (m *Manager) drop(at pluginregistry.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.drivers[at.Name], func(p *plugin) bool { return p.socket == at.Socket && p.endpoint == at.Endpoint })
	if i < 0 {
		return
	}
	p := m.drivers[at.Name][i]
	m.drivers[at.Name] = slices.Delete(m.drivers[at.Name], i, i+1)
	if len(m.drivers[at.Name]) == 0 {
		delete(m.drivers, at.Name)
	}
	p.connected = false
	p.cancel()
	m.sync(at.Name)
}

// sync begins to wait for the deletion of a driver's slices if the driver is not connected, and ends that if it is. The caller
// holds mu.
func (m *Manager) sync(name string) {
	if m.usable(name) {
		if cancel := m.wipes[name]; cancel != nil {
			cancel()
			delete(m.wipes, name)
		}
		return
	}
	if m.wipes[name] != nil || m.group == nil {
		return
	}
	started := make(chan context.CancelFunc, 1)
	if m.group.Go(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		started <- cancel
		defer cancel()
		if run.Pause(ctx, wipeDelay) {
			m.wipe(ctx, name)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if ctx.Err() == nil {
			delete(m.wipes, name)
		}
	}) {
		m.wipes[name] = <-started
	}
}

// wipe deletes the slices of a driver, or of all, trying until it succeeds or ctx is cancelled (dra-D4).
func (m *Manager) wipe(ctx context.Context, driver string) {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := m.opts.Wipe(ctx, driver)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			m.opts.Log.Warn("resource slices of the node not deleted, will try again", "driver", driver, "failures", failures, "err", err)
		}
		run.Pause(ctx, wipePauses.Pause(failures))
	}
}
