package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
)

// A call of NodePublishVolume that is cut off may still be at work in the driver, which then mounts the volume after it
// was unpublished. A client of gRPC does not learn about that. So after the unpublication the target is looked at for a
// while, and the volume is unpublished again if it is there.

// latePauses returns the pauses before each look at a target: a driver that takes longer than that is an operator's
// concern.
func latePauses() []time.Duration {
	return []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute, callLimit, callLimit, 2 * callLimit}
}

// A lateTarget is where a cut off call of a driver may mount a volume yet.
type lateTarget struct {
	pod  types.UID
	name string
}

// watchLate begins to look at the target of a volume that was unpublished, if a call that publishes it was cut off.
func (m *Manager) watchLate(l lateTarget, r record, target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.late[l] {
		return
	}
	delete(m.late, l)
	if m.group == nil {
		return // the next start finds it
	}
	m.group.Go(func(ctx context.Context) {
		run.Shield(m.opts.Log, func() {
			for _, pause := range latePauses() {
				if !m.opts.Pause(ctx, pause) {
					return
				}
				if _, err := os.Lstat(target); errors.Is(err, os.ErrNotExist) {
					continue
				}
				if err := m.unpublishLate(ctx, l, r, target); err != nil {
					m.opts.Log.Warn("a driver has mounted a volume after it was unpublished; it could not be unpublished again", "driver", r.Driver, "volume", r.Handle, "pod", l.pod, "err", err)
				}
			}
		}, "volume", r.Handle, "driver", r.Driver)
	})
}

// unpublishLate undoes a late NodePublishVolume. The pod does not use the volume any more, so no turn is taken for the
// call.
func (m *Manager) unpublishLate(ctx context.Context, l lateTarget, r record, target string) error {
	d, err := m.driver(r.Driver)
	if err != nil {
		return err
	}
	err = m.call(ctx, d, func(ctx context.Context, node csi.NodeClient) error {
		_, err := node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: m.shown(d.endpoint, target)})
		return err
	})
	if err != nil {
		return err
	}
	dir := filepath.Join(m.published(l.pod), l.name)
	if err := m.discard(dir, target); err != nil {
		return err
	}
	for range 3 { // the driver made them again: the directories of the plug-in, of volumes and of the pod
		dir = filepath.Dir(dir)
		if m.remove(dir) != nil {
			break // others are in it
		}
	}
	return nil
}
