package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sampan-io/sampan/node/pluginregistry"
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

// Remove forgets a driver and its metrics, and removes it from the objects of the node.
func (m *Manager) Remove(ctx context.Context, p pluginregistry.Plugin) {
	m.mu.Lock()
	name := ""
	for _, d := range m.drivers {
		if d.socket == p.Socket {
			name = d.name
			delete(m.drivers, name)
			break
		}
	}
	m.mu.Unlock()
	if name == "" {
		return
	}
	m.calls.Remove(name)
	err := m.write(ctx, func() error {
		if _, err := m.driver(name); err == nil {
			return nil // another plug-in has taken its place
		}
		return m.opts.Uninstall(ctx, name)
	})
	if err != nil && ctx.Err() == nil {
		m.opts.Log.WarnContext(ctx, "CSI driver not removed from the objects of the node", "driver", name, "err", err)
	}
}

// Registered wakes volumes that wait for a driver.
func (m *Manager) Registered(pluginregistry.Plugin) {
	m.mu.Lock()
	close(m.wake)
	m.wake = make(chan struct{})
	m.mu.Unlock()
	m.opts.Registered()
}

// Register checks what a plug-in has said, and makes it a driver. Errors are for the plug-in.
func (m *Manager) Register(ctx context.Context, p pluginregistry.Plugin) error {
	d := &driver{name: p.Name, endpoint: p.Endpoint, socket: p.Socket}
	if err := m.reserve(d, p.Versions); err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err)
	}
	about, err := m.ask(ctx, d)
	if err == nil {
		err = m.write(ctx, func() error {
			if err := m.opts.Install(ctx, about); err != nil {
				return err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.drivers[d.name] = d
			return nil
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.coming, d.name)
	if err != nil {
		return fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err)
	}
	return nil
}

// write calls f, which writes a driver into the objects of the node or removes one. Calls of f do not overlap. A
// removal and a refresh read m.drivers in f, so the objects keep no driver that was removed, and no answer of one that
// was replaced.
func (m *Manager) write(ctx context.Context, f func() error) error {
	select {
	case <-m.writes:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { m.writes <- struct{}{} }()
	return f()
}

// Drivers returns the names of the registered drivers.
func (m *Manager) Drivers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.drivers))
}

// Refresh asks a driver again what it says about the node, and writes it into the objects of the node unless the driver
// was removed or replaced meanwhile.
func (m *Manager) Refresh(ctx context.Context, name string) error {
	d, err := m.driver(name)
	if err != nil {
		return err
	}
	now := *d // others use its abilities
	about, err := m.ask(ctx, &now)
	if err != nil {
		return err
	}
	return m.write(ctx, func() error {
		if current, err := m.driver(name); err != nil || current != d {
			return err
		}
		return m.opts.Install(ctx, about)
	})
}

// reserve takes the name of a driver, which another socket may have (csi-C5).
func (m *Manager) reserve(d *driver, versions []string) (err error) {
	if !driverName.MatchString(d.name) {
		return fmt.Errorf("name %q of the CSI driver must have at most 63 letters, digits, - and ., and begin and end with a letter or digit", pluginregistry.Shorten(d.name))
	}
	fault := func(format string, args ...any) error {
		return fmt.Errorf("validation failed for CSI Driver %s at endpoint %s: %w", d.name, pluginregistry.Shorten(d.endpoint), fmt.Errorf(format, args...))
	}
	if d.path, err = m.sockets().Local(d.endpoint); err != nil {
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
			return fmt.Errorf("error adding CSI driver node info: topology %s: %s", pluginregistry.Shorten(k), faults[0])
		}
	}
	return nil
}

// call calls a driver, within a time limit.
func (m *Manager) call(ctx context.Context, d *driver, f func(ctx context.Context, node csi.NodeClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	conn, err := m.sockets().Connect(d.path, m.calls.Measure(d.name))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := f(ctx, csi.NewNodeClient(conn)); err != nil {
		return pluginregistry.Brief(err, maxText)
	}
	return nil
}

// maxText bounds, in bytes, what drivers say in events, which have 1,024.
const maxText = 768
