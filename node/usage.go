package node

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/stats"
)

// usage is what volumes, logs and writable layers occupy. To measure it the agent reads directories, so it does that only
// while a client asks, and uses a result for volumeStatsAggPeriod.
type usage struct {
	measuring sync.Mutex // one client measures at a time

	mu     sync.Mutex
	pods   map[types.UID]*stats.Files // guarded by mu
	at     map[types.UID]time.Time    // guarded by mu; when they were measured
	layers []*cri.ContainerStats      // guarded by mu
	layer  time.Time                  // guarded by mu; when they were measured
}

// measureLimit is how long one request may read directories. Pods that are left have their last results.
const measureLimit = 2 * time.Second

// fileUsage returns the use of volumes and logs of pods, by UID. Pods that are not in the list are forgotten.
func (n *Node) fileUsage(ctx context.Context, pods []stats.Pod, now time.Time) map[types.UID]*stats.Files {
	u := &n.volumeUse
	u.measuring.Lock()
	defer u.measuring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	u.mu.Lock()
	known, at := u.pods, u.at
	u.mu.Unlock()
	period := n.config().VolumeStatsAggPeriod.Duration
	next, times := make(map[types.UID]*stats.Files, len(pods)), make(map[types.UID]time.Time, len(pods))
	for _, p := range pods {
		if old := known[p.UID]; old != nil && (ctx.Err() != nil || now.Sub(at[p.UID]) < period) {
			next[p.UID], times[p.UID] = old, at[p.UID]
			continue
		}
		if f := n.measureFiles(ctx, p.Pod, now); f != nil {
			next[p.UID], times[p.UID] = f, now
		}
	}
	u.mu.Lock()
	u.pods, u.at = next, times
	u.mu.Unlock()
	return next
}

// measureFiles returns what the volumes and logs of a pod occupy, or nil if there was no time for it.
func (n *Node) measureFiles(ctx context.Context, pod *corev1.Pod, now time.Time) *stats.Files {
	f := &stats.Files{Logs: map[string]*statsapi.FsStats{}}
	fs := stats.OfFileSystem(n.opts.RootDir, now)
	if n.files.mounted(pod.UID) && *n.config().LocalStorageCapacityIsolation {
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if isHosted(v) {
				continue
			}
			dir, began := n.files.path(pod, v), time.Now()
			space, err := stats.OfDirectory(ctx, dir)
			n.metrics.Volumes.Measured.WithLabelValues("du").Observe(time.Since(began).Seconds())
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				f.Volumes = append(f.Volumes, statsapi.VolumeStats{Name: v.Name, FsStats: *space.On(stats.OfFileSystem(dir, now), now)})
			}
			if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault {
				f.Ephemeral.Bytes += space.Bytes
				f.Ephemeral.Inodes += space.Inodes
			}
		}
		f.Volumes = append(f.Volumes, n.claimedVolumes(ctx, pod)...)
	}
	if dir := n.logs(pod); dir != "" {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				space := stats.OfLogs(filepath.Join(dir, list[i].Name))
				f.Logs[list[i].Name] = space.On(fs, now)
				f.Ephemeral.Bytes += space.Bytes
				f.Ephemeral.Inodes += space.Inodes
			}
		}
	}
	return f
}

// claimedVolumes returns the use of the pod's volumes of claims: that of the file systems that they are on, or what their driver says.
func (n *Node) claimedVolumes(ctx context.Context, pod *corev1.Pod) []statsapi.VolumeStats {
	if n.opts.RootDir == "" {
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
		fs := stats.OfFileSystem(n.files.path(pod, v), began)
		if pv := n.driverVolumeAt(pod, v); pv != "" {
			source = n.metrics.Volumes.Driver(pod.UID, v)
			fs = n.driverStats(ctx, pod, pv)
		}
		n.metrics.Volumes.Measured.WithLabelValues(source).Observe(time.Since(began).Seconds())
		if fs != nil {
			all = append(all, statsapi.VolumeStats{Name: v.Name, FsStats: *fs, PVCRef: &statsapi.PVCReference{Name: name, Namespace: pod.Namespace}})
		}
	}
	return all
}

// writableLayers returns the stats of containers with their writable layers, not older than age.
func (n *Node) writableLayers(ctx context.Context, age time.Duration) ([]*cri.ContainerStats, error) {
	u := &n.volumeUse
	u.mu.Lock()
	layers, at := u.layers, u.layer
	u.mu.Unlock()
	now := time.Now()
	if layers != nil && now.Sub(at) < age {
		return layers, nil
	}
	layers, err := n.opts.Runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	u.layers, u.layer = layers, now
	u.mu.Unlock()
	return layers, nil
}
