package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

// Options configures a [Manager]. All fields but Done are required.
type Options struct {
	Root string // the agent's directory, without links in it (csi-C1)
	Node string // name of the node

	// Install writes what a driver says about itself into the objects of the node; the driver may be used after it
	// succeeded. Uninstall undoes it, after the driver's socket has been removed.
	Install   func(ctx context.Context, info Info) error
	Uninstall func(ctx context.Context, driver string) error

	Changed    func() // InUse has changed; it must not block
	Registered func() // there is a new driver; it must not block
	// Done is called when an operation on a volume of a driver has ended that began at a time: volume_unmount,
	// unmap_volume, unmount_device or unmap_device. It must not block.
	Done func(driver, operation string, began time.Time, err error)
	// Pause waits, and returns false if ctx was cancelled meanwhile; nil means that it takes the time.
	Pause func(ctx context.Context, d time.Duration) bool
	Log   *slog.Logger
}

// Info is what a driver says about the node.
type Info struct {
	Driver     string
	NodeID     string            // the driver's name of the node
	MaxVolumes int64             // how many volumes the node can have; 0 means no limit
	Topology   map[string]string // where volumes for the node have to be; becomes labels of the node
}

// The limits of what drivers may do.
const (
	maxTopology = 64              // labels
	callLimit   = 2 * time.Minute // of each call for a volume, as in kubelet
)

// pauses are those between tries to unstage, as in kubelet.
var pauses = run.Backoff{First: 500 * time.Millisecond, Max: 2 * time.Minute}

// A Manager has the drivers of a node, as a [pluginregistry.Handler], and the volumes that they have mounted. It is
// safe for concurrent use.
type Manager struct {
	opts   Options
	calls  *pluginregistry.Calls
	writes chan struct{} // holds a token while no driver is written into the objects of the node

	mu      sync.Mutex
	drivers map[string]*driver  // guarded by mu; by name
	coming  map[string]*driver  // guarded by mu; drivers that are being installed, by name
	volumes map[key]*entry      // guarded by mu
	late    map[lateTarget]bool // guarded by mu; calls of NodePublishVolume that were cut off
	group   *run.Group          // guarded by mu; nil outside of Run
	wake    chan struct{}       // guarded by mu; closed and replaced when a driver has registered
}

// A key names a volume on the node.
type key struct{ driver, handle string }

// An entry is a volume that is on the node or will be. Manager.mu guards all fields but turn.
type entry struct {
	key
	turn             chan struct{} // holds a token while no driver is called for the volume (csi-C3)
	attached         bool          // by a VolumeAttachment, when a pod was last given it; the CSIDriver may change
	users            map[types.UID]bool
	published        map[types.UID]bool // by this process
	recorded         bool               // there is a record of staging
	staged           bool               // by this process
	block            string             // name of the volume if it is a block device
	expansionRefused bool               // by its driver because it is in use, until it has left the node
	sweeping         bool               // there is a goroutine that unstages it
	usage            usage
}

// New returns a manager without drivers; call [Manager.Open], and then [Manager.Run].
func New(opts Options) *Manager {
	if opts.Done == nil {
		opts.Done = func(string, string, time.Time, error) {}
	}
	if opts.Pause == nil {
		opts.Pause = run.Pause
	}
	m := &Manager{
		late: map[lateTarget]bool{},
		opts: opts, writes: make(chan struct{}, 1), wake: make(chan struct{}),
		drivers: map[string]*driver{}, coming: map[string]*driver{}, volumes: map[key]*entry{},
	}
	m.calls = newCalls(m.IsRegistered)
	m.writes <- struct{}{}
	return m
}

// at returns the entry of a volume, which it makes if necessary. The caller holds mu.
func (m *Manager) at(k key) *entry {
	e := m.volumes[k]
	if e == nil {
		e = &entry{key: k, turn: make(chan struct{}, 1), users: map[types.UID]bool{}, published: map[types.UID]bool{}}
		e.turn <- struct{}{}
		m.volumes[k] = e
	}
	return e
}

// turn returns the entry of a volume when its driver may be called for it; entry.give ends that.
func (m *Manager) turn(ctx context.Context, v *Volume) (*entry, error) {
	m.mu.Lock()
	e := m.at(key{v.Driver, v.Handle})
	m.mu.Unlock()
	return e, e.take(ctx)
}

// take waits for the turn of a call for the volume; give ends it.
func (e *entry) take(ctx context.Context) error {
	select {
	case <-e.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for another operation on the volume: %w", context.Cause(ctx))
	}
}

func (e *entry) give() { e.turn <- struct{}{} }

// Open reads the records of what an earlier agent has mounted (csi-C2).
func (m *Manager) Open() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.openStages(); err != nil {
		return err
	}
	pods, err := m.listed(filepath.Join(m.opts.Root, "pods"))
	if err != nil {
		return err
	}
	for _, pod := range pods {
		records, err := m.podRecords(types.UID(pod))
		if err != nil {
			return err
		}
		for _, r := range records {
			e := m.at(key{r.Driver, r.Handle})
			e.users[types.UID(pod)] = true
			e.attached = e.attached || r.AttachmentID != ""
		}
	}
	return nil
}

// openStages reads the records of volumes that were staged. The caller holds mu.
func (m *Manager) openStages() error {
	top := filepath.Join(m.opts.Root, "plugins", pluginName)
	drivers, err := m.listed(top)
	if err != nil {
		return err
	}
	for _, driver := range drivers {
		volumes, err := m.listed(filepath.Join(top, driver))
		if err != nil {
			return err
		}
		for _, name := range volumes {
			dir := filepath.Join(top, driver, name)
			r, err := m.load(dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue // it is not a volume
			}
			if err != nil || dir != m.staged(r.Driver, r.Handle) {
				m.opts.Log.Warn("record of a staged volume ignored", "dir", dir, "err", err)
				continue
			}
			e := m.at(key{r.Driver, r.Handle})
			e.recorded, e.attached, e.block = true, r.AttachmentID != "", r.blockName()
		}
	}
	return nil
}

// Run unstages volumes until ctx is cancelled. Volumes stay mounted then.
func (m *Manager) Run(ctx context.Context) error {
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	m.mu.Lock()
	m.group = group
	for _, e := range m.volumes {
		m.sweep(e)
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.group = nil
	}()
	<-ctx.Done()
	return nil
}

// InUse returns the attachable volumes that the node uses, sorted: they must not be detached.
func (m *Manager) InUse() []corev1.UniqueVolumeName {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []corev1.UniqueVolumeName
	for k, e := range m.volumes {
		if e.attached {
			all = append(all, volumefit.UniqueName(k.driver, k.handle))
		}
	}
	slices.Sort(all)
	return all
}

// Abilities are what a driver can do, beside publishing volumes.
type Abilities struct{ Stage, MountGroup, Stats, Expand bool }

// Abilities returns what a driver can do. The error, in kubelet's words, is that there is no such driver.
func (m *Manager) Abilities(driver string) (Abilities, error) {
	d, err := m.driver(driver)
	if err != nil {
		return Abilities{}, err
	}
	return Abilities{
		Stage: d.can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME), MountGroup: d.can(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP),
		Stats: d.can(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS), Expand: d.can(csi.NodeServiceCapability_RPC_EXPAND_VOLUME),
	}, nil
}

func (m *Manager) driver(name string) (*driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// Hold records that a pod uses a volume, which is not unstaged until [Manager.Release]. It returns an error if the
// volume is for one pod and another pod uses it. The scheduler checks that too, but users can create pods with a node.
func (m *Manager) Hold(v *Volume) error {
	if err := v.check(); err != nil {
		return err
	}
	m.mu.Lock()
	e := m.at(key{v.Driver, v.Handle})
	if v.AccessMode == corev1.ReadWriteOncePod && (len(e.users) > 1 || len(e.users) == 1 && !e.users[v.Pod]) {
		m.mu.Unlock()
		return errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	changed := v.Attached != e.attached
	e.users[v.Pod] = true
	e.attached = v.Attached
	if v.Block {
		e.block = v.Name
	}
	m.mu.Unlock()
	if changed {
		m.opts.Changed()
	}
	return nil
}

// Release unpublishes the volumes of a pod that has no containers any more. Volumes that no other pod uses are unstaged
// later. After an error the caller calls it again.
func (m *Manager) Release(ctx context.Context, pod types.UID) error {
	records, err := m.podRecords(pod)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := m.unpublish(ctx, pod, r.dir, r.record); err != nil {
			return fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", r.dir, err)
		}
	}
	changed := false
	m.mu.Lock()
	for _, e := range m.volumes {
		if e.users[pod] {
			changed = true
			delete(e.users, pod)
			delete(e.published, pod)
			m.sweep(e)
		}
	}
	m.mu.Unlock()
	if changed {
		m.opts.Changed()
	}
	return nil
}

// sweep begins to unstage a volume that no pod uses, or forgets it if it is not staged. The caller holds mu.
func (m *Manager) sweep(e *entry) {
	if len(e.users) > 0 || e.sweeping {
		return
	}
	if !e.recorded {
		delete(m.volumes, e.key)
		return
	}
	if m.group != nil { // otherwise Run does it
		e.sweeping = m.group.Go(func(ctx context.Context) {
			run.Shield(m.opts.Log, func() { m.unstageAll(ctx, e) }, "volume", e.handle, "driver", e.driver)
		})
	}
}

// unstageAll unstages a volume unless a pod uses it (csi-C4).
func (m *Manager) unstageAll(ctx context.Context, e *entry) {
	defer func() {
		m.mu.Lock()
		e.sweeping = false
		if ctx.Err() == nil {
			m.sweep(e) // it is forgotten now, or was used again meanwhile
		}
		m.mu.Unlock()
		m.opts.Changed()
	}()
	for failures := 1; ; failures++ {
		m.mu.Lock()
		wake := m.wake
		m.mu.Unlock()
		err := m.unstage(ctx, e)
		if err == nil || ctx.Err() != nil {
			return
		}
		m.opts.Log.WarnContext(ctx, "volume not unstaged, will try again", "volume", e.handle, "driver", e.driver, "failures", failures, "err", err)
		select {
		case <-time.After(pauses.Pause(failures)):
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}
