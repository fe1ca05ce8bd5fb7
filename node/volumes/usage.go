package volumes

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/stats"
)

// usage is what volumes and logs occupy. To measure it the agent reads directories, so it does that only
// while a client asks, and uses a result for volumeStatsAggPeriod.
type usage struct {
	measuring sync.Mutex // one client measures at a time

	mu   sync.Mutex
	pods map[types.UID]*stats.Files // guarded by mu
	at   map[types.UID]time.Time    // guarded by mu; when they were measured
}

// MeasureLimit is how long one request may read directories. Pods that are left have their last results.
const MeasureLimit = 2 * time.Second

// Usage returns the use of volumes and logs of pods, by UID. Pods that are not in the list are forgotten.
func (f *Files) Usage(ctx context.Context, pods []stats.Pod, now time.Time) map[types.UID]*stats.Files {
	u := &f.use
	u.measuring.Lock()
	defer u.measuring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, MeasureLimit)
	defer cancel()
	u.mu.Lock()
	known, at := u.pods, u.at
	u.mu.Unlock()
	period := f.node.Config.VolumeStatsAggPeriod.Duration
	next, times := make(map[types.UID]*stats.Files, len(pods)), make(map[types.UID]time.Time, len(pods))
	for _, p := range pods {
		if old := known[p.UID]; old != nil && (ctx.Err() != nil || now.Sub(at[p.UID]) < period) {
			next[p.UID], times[p.UID] = old, at[p.UID]
			continue
		}
		if found := f.measureFiles(ctx, p.Pod, now); found != nil {
			next[p.UID], times[p.UID] = found, now
		}
	}
	u.mu.Lock()
	u.pods, u.at = next, times
	u.mu.Unlock()
	return next
}

// measureFiles returns what the volumes and logs of a pod occupy, or nil if there was no time for it.
func (f *Files) measureFiles(ctx context.Context, pod *corev1.Pod, now time.Time) *stats.Files {
	found := &stats.Files{Logs: map[string]*statsapi.FsStats{}}
	fs := stats.OfFileSystem(f.node.RootDir, now)
	if f.Mounted(pod.UID) && *f.node.Config.LocalStorageCapacityIsolation {
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if isHosted(v) {
				continue
			}
			dir, began := f.Path(pod, v), time.Now()
			space, err := stats.OfDirectory(ctx, dir)
			f.node.Metrics.Measured.WithLabelValues("du").Observe(time.Since(began).Seconds())
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				found.Volumes = append(found.Volumes, statsapi.VolumeStats{Name: v.Name, FsStats: *space.On(stats.OfFileSystem(dir, now), now)})
			}
			if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault {
				found.Ephemeral.Bytes += space.Bytes
				found.Ephemeral.Inodes += space.Inodes
			}
		}
		found.Volumes = append(found.Volumes, f.Claimed(ctx, pod)...)
	}
	if dir := f.node.Logs(pod); dir != "" {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				space := stats.OfLogs(filepath.Join(dir, list[i].Name))
				found.Logs[list[i].Name] = space.On(fs, now)
				found.Ephemeral.Bytes += space.Bytes
				found.Ephemeral.Inodes += space.Inodes
			}
		}
	}
	return found
}

// Claimed returns the use of the pod's volumes of claims: that of the file systems that they are on, or what their driver says.
func (f *Files) Claimed(ctx context.Context, pod *corev1.Pod) []statsapi.VolumeStats {
	if f.node.RootDir == "" {
		return nil
	}
	var all []statsapi.VolumeStats
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name, _ := volumefit.Named(pod, v)
		if name == "" {
			continue
		}
		began, source := time.Now(), "statfs"
		fs := stats.OfFileSystem(f.Path(pod, v), began)
		if pv := f.driverVolumeAt(pod, v); pv != "" {
			source = f.node.Metrics.Driver(pod.UID, v)
			fs = f.driverStats(ctx, pod, pv)
		}
		f.node.Metrics.Measured.WithLabelValues(source).Observe(time.Since(began).Seconds())
		if fs != nil {
			all = append(all, statsapi.VolumeStats{Name: v.Name, FsStats: *fs, PVCRef: &statsapi.PVCReference{Name: name, Namespace: pod.Namespace}})
		}
	}
	return all
}
