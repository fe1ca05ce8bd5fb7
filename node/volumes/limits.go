package volumes

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/lifecycle"
)

// A driver may allow another number of volumes on the node from time to time (KEP-4876). The field
// nodeAllocatableUpdatePeriodSeconds of its CSIDriver says how often the agent asks it, and writes the answer into the CSINode. The agent
// also asks when a volume can't be attached because there are too many, and then gives the pod up, so that its
// controller makes another one, which gets another node.

// updatePeriod returns how often a driver is to be asked for its limit; zero if never.
func updatePeriod(d *storagev1.CSIDriver) time.Duration {
	if d == nil || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// A limitSchedule has the time when each driver that is asked from time to time was asked.
type limitSchedule map[string]time.Time

// due returns the drivers to be asked now, sorted, and how long until the next ones are due; zero if there are none. A driver that
// is new among periods was asked when it registered.
func (s limitSchedule) due(now time.Time, periods map[string]time.Duration) (names []string, next time.Duration) {
	for name := range s {
		if periods[name] == 0 {
			delete(s, name)
		}
	}
	for name, period := range periods {
		if s[name].IsZero() {
			s[name] = now
		}
		if now.Sub(s[name]) >= period {
			s[name] = now
			names = append(names, name)
		}
		if left := period - now.Sub(s[name]); next == 0 || left < next {
			next = left
		}
	}
	slices.Sort(names)
	return names, next
}

// A limitRefresher asks drivers for their limits, each one on a goroutine of its own: a driver that does not answer delays
// no other one.
type limitRefresher struct {
	group   *run.Group
	refresh func(ctx context.Context, driver string) error
	log     *slog.Logger

	mu      sync.Mutex
	pending map[string]bool // guarded by mu; drivers that have not answered
}

// start asks a driver, unless it has not answered the last time.
func (r *limitRefresher) start(driver string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[driver] {
		return
	}
	r.pending[driver] = r.group.Go(func(ctx context.Context) {
		defer r.answered(driver)
		run.Shield(r.log, func() {
			if err := r.refresh(ctx, driver); err != nil && ctx.Err() == nil {
				r.log.Warn("limit of a CSI driver not updated, will try again", "driver", driver, "err", err)
			}
		}, "driver", driver)
	})
}

func (r *limitRefresher) answered(driver string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, driver)
}

// keepLimits asks drivers for their limits until ctx is cancelled. It watches the CSIDrivers from when the node has a driver.
func (f *Files) keepLimits(ctx context.Context) error {
	for {
		changed := f.driverChanges.next()
		if len(f.csi.Drivers()) > 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
	objects := cache.New(f.node.Client, client.CSIDrivers, cache.Options[*storagev1.CSIDriver]{Log: f.node.Log})
	objects.Subscribe(func(_, _ *storagev1.CSIDriver) { f.driverChanges.send() })
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) { _ = objects.Run(ctx) })
	schedule := limitSchedule{}
	refresher := &limitRefresher{group: g, refresh: f.csi.Refresh, log: f.node.Log, pending: map[string]bool{}}
	for ctx.Err() == nil {
		changed := f.driverChanges.next()
		periods := map[string]time.Duration{}
		for _, name := range f.csi.Drivers() {
			if d, ok := objects.Get("", name); ok && updatePeriod(d) > 0 {
				periods[name] = updatePeriod(d)
			}
		}
		names, next := schedule.due(time.Now(), periods)
		for _, name := range names {
			refresher.start(name)
		}
		awaitChange(ctx, changed, next)
	}
	return nil
}

// awaitChange returns when changed is closed, after a time if that is not zero, or when ctx is cancelled.
func awaitChange(ctx context.Context, changed <-chan struct{}, after time.Duration) {
	if after > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, after)
		defer cancel()
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// exceeded reports whether a volume was not attached because the node has too many, as its driver says. The limit is updated then.
func (f *Files) exceeded(ctx context.Context, v *driverVolume) bool {
	if updatePeriod(v.driver) == 0 {
		return false
	}
	a, err := client.VolumeAttachments.Get(ctx, f.node.Client, "", volumefit.AttachmentName(v.Handle, v.Driver, f.node.Name))
	if err != nil || a.Status.AttachError == nil || a.Status.AttachError.ErrorCode == nil || *a.Status.AttachError.ErrorCode != int32(codes.ResourceExhausted) {
		return false
	}
	if err := f.csi.Refresh(ctx, v.Driver); err != nil && ctx.Err() == nil {
		f.node.Log.Warn("limit of a CSI driver not updated", "driver", v.Driver, "err", err)
	}
	return true
}

// tooManyVolumes is the error of a pod with a volume that can't be attached because the node has too many.
func tooManyVolumes(volume string, cause error) error {
	return &lifecycle.RejectionError{Rejection: lifecycle.Rejection{
		Reason: "VolumeAttachmentLimitExceeded",
		Message: fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[%[1]s], unattached volumes=[%[1]s], failed to process volumes=[]: %[2]v",
			volume, cause),
	}}
}
