package csi

import (
	"context"
	"path/filepath"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
)

// A usage is the last answer of a driver about the use of a volume. A goroutine asks the driver; each volume has one at
// a time. The driver may take longer to answer than a reader waits.
type usage struct {
	parts  []*csi.VolumeUsage // of the last answer; nil after an error
	at     time.Time          // of the answer
	asking chan struct{}      // closed when the driver has answered; nil if it is not being asked
	late   bool               // a reader has given up waiting for this answer: other readers do not wait for it
}

// Stats returns the driver's answer about the use of a pod's volume, and the time of the answer; nil if the driver does
// not report it. It asks the driver if the last answer is not younger than age. When ctx is cancelled, Stats returns
// the last answer. The driver is not interrupted then, and other readers do not wait for it.
func (m *Manager) Stats(ctx context.Context, pod types.UID, name string, age time.Duration) ([]*csi.VolumeUsage, time.Time, error) {
	r, err := m.load(filepath.Join(m.published(pod), name))
	if err != nil {
		return nil, time.Time{}, err
	}
	d, err := m.driver(r.Driver)
	if err != nil || !d.can(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS) {
		return nil, time.Time{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.volumes[key{r.Driver, r.Handle}]
	if e == nil {
		return nil, time.Time{}, nil // it has been unmounted just now
	}
	if e.usage.asking == nil && m.group != nil && (e.usage.at.IsZero() || time.Since(e.usage.at) >= age) {
		asking := make(chan struct{})
		path := m.shown(d.endpoint, m.target(pod, name, r.Mode == blockMode))
		if m.group.Go(func(ctx context.Context) {
			defer m.answered(e, asking)
			run.Shield(m.opts.Log, func() { m.askUsage(ctx, d, e, path) }, "volume", e.handle, "driver", e.driver)
		}) {
			e.usage.asking, e.usage.late = asking, false
		}
	}
	if asking := e.usage.asking; asking != nil && !e.usage.late {
		m.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		m.mu.Lock()
		e.usage.late = e.usage.asking == asking
	}
	return e.usage.parts, e.usage.at, nil
}

// askUsage asks the driver about the use of a volume at a path.
func (m *Manager) askUsage(ctx context.Context, d *driver, e *entry, path string) {
	var parts []*csi.VolumeUsage
	err := m.call(ctx, d, func(ctx context.Context, node csi.NodeClient) error {
		answer, err := node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: e.handle, VolumePath: path})
		parts = answer.GetUsage()
		return err
	})
	if err != nil {
		m.opts.Log.DebugContext(ctx, "the driver does not say how much of a volume is used", "volume", e.handle, "driver", e.driver, "err", err)
		parts = nil
	}
	m.mu.Lock()
	e.usage.parts, e.usage.at = parts, time.Now()
	m.mu.Unlock()
}

// answered records that the driver is not being asked any more.
func (m *Manager) answered(e *entry, asking chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.usage.asking = nil
	close(asking)
}
