package pressure

import (
	"context"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/capacity"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/eviction"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/stats"
	"github.com/sampan-io/sampan/node/volumes"
)

const (
	// watchPeriod is how often the node compares what it has with the thresholds, as in Kubernetes.
	watchPeriod = 10 * time.Second
	// remeasure is how often the local storage of pods with limits is measured if the file system has not changed.
	remeasure = 5 * time.Minute

	// After so many files, the measurement of a directory pauses: it takes a twentieth of a processor at most.
	walkBatch = 256
	walkShare = 20
)

// An Pod is a pod with a worker.
type Pod interface {
	// Status returns the state of the pod, and a channel that is closed when that has changed.
	Status() (lifecycle.Observed, <-chan struct{})
	// Evict has the worker end the pod, unless it has ended. Signal is what the metrics name as the cause.
	Evict(signal string, verdict lifecycle.Verdict)
}

// Options configures an [Evictor].
type Options struct {
	Thresholds []eviction.Threshold
	Config     *kubeletconfig.Config
	RootDir    string // its file system is measured
	Runtime    criclient.Runtime
	Files      *volumes.Files
	Metrics    *metrics.Pods
	Log        *slog.Logger

	Pods   iter.Seq[Pod]                   // all pods that have workers
	Pod    func(uid types.UID) (Pod, bool) // the one with a UID
	Logs   func(pod *corev1.Pod) string    // the directory of a pod's logs; "" if there is none
	Memory func() int64                    // of the machine, in bytes
	// Conditions sets the conditions of pressure that hold, and returns the earlier ones.
	Conditions func([]corev1.NodeConditionType) []corev1.NodeConditionType
	// Changed is called when the conditions have changed.
	Changed func()
	// Event records an event about the node.
	Event func(kind, reason, format string, args ...any)
}

// An Evictor watches what the node has too little of, and evicts pods. It is used by one goroutine.
type Evictor struct {
	opts    Options
	monitor eviction.Monitor
	// disk is the state of the file system when local storage was last measured, at the time measured.
	disk     [2]uint64
	measured time.Time
}

func New(o Options) *Evictor {
	return &Evictor{opts: o, monitor: eviction.Monitor{Thresholds: o.Thresholds, Transition: o.Config.EvictionPressureTransitionPeriod.Duration}}
}

// Run evicts pods until ctx is cancelled. An idle node reads two files and the state of one file system every ten
// seconds. Directories are read only if a running pod has a limit and the file system has changed, or if pods have to be
// compared.
func (e *Evictor) Run(ctx context.Context) error {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	for {
		err := run.Catch(func() error { e.relieve(ctx, time.Now()); return nil })
		if err != nil {
			e.opts.Log.Error("panic while looking for pods to evict, will try again", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// relieve ends pods that exceed their limits of local storage or, if the node lacks something, the first pod in the order of
// eviction.
func (e *Evictor) relieve(ctx context.Context, now time.Time) {
	values, disk := e.observe(now)
	short, conditions := e.monitor.Observe(values, now)
	e.setPressure(conditions)
	if disk != e.disk || now.Sub(e.measured) >= remeasure {
		e.disk, e.measured = disk, now
		if e.evictExceeding(ctx) {
			return
		}
	}
	if len(short) == 0 {
		return
	}
	s := short[0]
	e.opts.Event(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", s.Resource)
	if s.OfDisk() && e.reclaimContainers(ctx) {
		return // the disk is observed again
	}
	pods := e.usage(ctx, s.Resource != corev1.ResourceMemory, func(*corev1.Pod) bool { return true })
	victim, message := eviction.Victim(s, pods)
	if victim == nil {
		threshold, available := s.Numbers()
		e.opts.Log.Warn("unable to evict any pods from the node: all are critical, or none runs",
			"resource", s.Resource, "signal", s.Signal, "threshold", threshold, "available", available)
		return
	}
	for _, s := range short {
		e.opts.Metrics.StatsAge.WithLabelValues(string(s.Signal)).Observe(time.Since(now).Seconds())
	}
	e.evict(ctx, victim.Pod, evictionCause{signal: string(s.Signal), message: message, grace: e.graceOf(s, victim.Pod), disrupted: true})
}

// reclaimContainers removes the containers of pods that have ended, whose files are on the disk until their pod is deleted, and
// reports whether there were any. What they have logged stays.
func (e *Evictor) reclaimContainers(ctx context.Context) bool {
	all, err := e.opts.Runtime.ListContainers(ctx, &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_EXITED}})
	if err != nil {
		e.opts.Log.Warn("the containers of ended pods are not removed", "err", err)
		return false
	}
	ended := map[string]bool{}
	for w := range e.opts.Pods {
		state, _ := w.Status()
		ended[string(state.Pod.UID)] = state.Pod.Name != "" && podstate.FinishedIn(&state.Pod.Status)
	}
	removed := 0
	for _, c := range all {
		if !ended[c.GetLabels()[crispec.PodUID]] {
			continue
		}
		if err := e.opts.Runtime.RemoveContainer(ctx, c.GetId()); err != nil {
			e.opts.Log.Warn("a container of an ended pod is not removed", "container", c.GetId(), "err", err)
			continue
		}
		removed++
	}
	if removed > 0 {
		e.opts.Log.Info("removed containers of ended pods, because the disk is nearly full", "containers", removed)
	}
	return removed > 0
}

// hardGrace is how long a pod may take to end that is evicted for a hard threshold, or for its own limits.
const hardGrace = time.Second

// graceOf returns how long an evicted pod may take to end. For a soft threshold that is as long as it wants, within the limit of the
// configuration.
func (e *Evictor) graceOf(s eviction.Shortage, pod *corev1.Pod) time.Duration {
	if !s.Soft {
		return hardGrace
	}
	most := time.Duration(e.opts.Config.EvictionMaxPodGracePeriod) * time.Second
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		most = min(most, time.Duration(*own)*time.Second)
	}
	return max(most, hardGrace)
}

// observe reads the signals, and the free space and inodes of the node's file system.
func (e *Evictor) observe(now time.Time) (map[eviction.Signal]eviction.Observation, [2]uint64) {
	values := map[eviction.Signal]eviction.Observation{}
	var disk [2]uint64
	if fs := stats.OfFileSystem(e.opts.RootDir, now); fs != nil {
		disk = [2]uint64{*fs.AvailableBytes, *fs.InodesFree}
		space := eviction.Observation{Available: int64(*fs.AvailableBytes), Capacity: int64(*fs.CapacityBytes)}
		files := eviction.Observation{Available: int64(*fs.InodesFree), Capacity: int64(*fs.Inodes)}
		// Images are on the same file system.
		values[eviction.NodeFsAvailable], values[eviction.ImageFsAvailable] = space, space
		values[eviction.NodeFsInodes], values[eviction.ImageFsInodes] = files, files
	}
	if m, err := stats.OfMemory(now); err == nil {
		values[eviction.MemoryAvailable] = eviction.Observation{Available: int64(*m.AvailableBytes), Capacity: e.opts.Memory()}
	}
	if o, ok := processIDs(); ok {
		values[eviction.PIDAvailable] = o
	}
	return values, disk
}

// processIDs returns how many threads the kernel can still start.
func processIDs() (eviction.Observation, bool) {
	limit, err := strconv.ParseInt(oneLine("/proc/sys/kernel/pid_max"), 10, 64)
	load := strings.Fields(oneLine("/proc/loadavg"))
	if err != nil || len(load) < 4 {
		return eviction.Observation{}, false
	}
	_, total, _ := strings.Cut(load[3], "/")
	threads, err := strconv.ParseInt(total, 10, 64)
	return eviction.Observation{Available: limit - threads, Capacity: limit}, err == nil
}

// oneLine returns the text of a file of the kernel; "" if it is not there.
func oneLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// setPressure makes the conditions of the node those given, and publishes them if they have changed.
func (e *Evictor) setPressure(conditions []corev1.NodeConditionType) {
	if slices.Equal(e.opts.Conditions(conditions), conditions) {
		return
	}
	e.opts.Changed()
	if len(conditions) == 0 {
		e.opts.Log.Info("the node is no longer under pressure")
		return
	}
	attrs := []any{"conditions", conditions}
	for _, s := range e.monitor.Met() {
		threshold, available := s.Numbers()
		attrs = append(attrs, string(s.Signal), available+" available, threshold "+threshold)
	}
	e.opts.Log.Warn("the node is under pressure", attrs...)
}

// evictExceeding ends the pods that use more local storage than they may, and reports whether there were any.
func (e *Evictor) evictExceeding(ctx context.Context) bool {
	found := false
	for _, p := range e.usage(ctx, true, eviction.Limited) {
		if limit, message := eviction.Exceeded(&p); message != "" && !eviction.Critical(p.Pod) {
			e.evict(ctx, p.Pod, evictionCause{signal: string(limit), message: message, grace: hardGrace})
			found = true
		}
	}
	return found
}

// An evictionCause is why a pod is evicted.
type evictionCause struct {
	signal    string // of the threshold, or the name of the pod's own limit
	message   string // for users
	grace     time.Duration
	disrupted bool // the node lacks a resource; false if the pod exceeded a limit of its own
}

// evict ends a pod, and waits until it has ended and its volumes are removed, or for a limited time: its volumes may be what fills
// the disk.
func (e *Evictor) evict(ctx context.Context, pod *corev1.Pod, cause evictionCause) {
	w, ok := e.opts.Pod(pod.UID)
	if !ok {
		return
	}
	e.opts.Log.Info("evicting a pod", "pod", pod.Namespace+"/"+pod.Name, "message", cause.message)
	w.Evict(cause.signal, lifecycle.Verdict{Reason: eviction.Reason, Message: cause.message, Grace: &cause.grace, Disrupted: cause.disrupted})
	limited, cancel := context.WithTimeout(ctx, cause.grace+capacity.EndLimit)
	defer cancel()
	for {
		state, changed := w.Status()
		if state.Over || podstate.FinishedIn(&state.Pod.Status) && !state.Mounted {
			return
		}
		select {
		case <-changed:
		case <-limited.Done():
			return
		}
	}
}

// usage returns what the running pods use that are wanted, with local storage if disk is true.
func (e *Evictor) usage(ctx context.Context, disk bool, wanted func(*corev1.Pod) bool) []eviction.Pod {
	var list []eviction.Pod
	for w := range e.opts.Pods {
		state, _ := w.Status()
		if state.Over || state.Pod.Name == "" || podstate.FinishedIn(&state.Pod.Status) || !wanted(state.Pod) {
			continue
		}
		p := eviction.Pod{Pod: state.Pod, Containers: map[string]eviction.Use{}, Volumes: map[string]int64{}}
		e.memoryOf(ctx, &p)
		if disk {
			e.storageOf(ctx, &p)
		}
		list = append(list, p)
	}
	return list
}

// memoryOf fills in the memory and the processes of a pod. What the runtime does not know stays 0.
func (e *Evictor) memoryOf(ctx context.Context, p *eviction.Pod) {
	all, err := e.opts.Runtime.ListPodSandboxStats(ctx, &cri.PodSandboxStatsFilter{LabelSelector: map[string]string{crispec.PodUID: string(p.UID)}})
	if err != nil {
		return
	}
	for _, s := range all {
		p.Memory += int64(s.GetLinux().GetMemory().GetWorkingSetBytes().GetValue())
		p.Processes += int64(s.GetLinux().GetProcess().GetProcessCount().GetValue())
		for _, c := range s.GetLinux().GetContainers() {
			name := c.GetAttributes().GetMetadata().GetName()
			u := p.Containers[name]
			u.Memory += int64(c.GetMemory().GetWorkingSetBytes().GetValue())
			p.Containers[name] = u
		}
	}
}

// storageOf fills in the local storage of a pod.
func (e *Evictor) storageOf(ctx context.Context, p *eviction.Pod) {
	layers, err := e.opts.Runtime.ListContainerStats(ctx, &cri.ContainerStatsFilter{LabelSelector: map[string]string{crispec.PodUID: string(p.UID)}})
	if err == nil {
		for _, l := range layers {
			name := l.GetAttributes().GetMetadata().GetName()
			u := p.Containers[name]
			u.Disk += int64(l.GetWritableLayer().GetUsedBytes().GetValue())
			p.Inodes += int64(l.GetWritableLayer().GetInodesUsed().GetValue())
			p.Containers[name] = u
		}
	}
	if dir := e.opts.Logs(p.Pod); dir != "" {
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				bytes, _ := diskUse(ctx, filepath.Join(dir, list[i].Name))
				u := p.Containers[list[i].Name]
				u.Disk += bytes
				p.Containers[list[i].Name] = u
			}
		}
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault {
			continue
		}
		bytes, files := diskUse(ctx, e.opts.Files.Path(p.Pod, v))
		p.Volumes[v.Name] = bytes
		p.Inodes += files
	}
}

// diskUse returns the space and the number of files below a directory, without crossing into other file systems. It takes its
// time: it pauses after some files. A file with several names counts once for each.
func diskUse(ctx context.Context, dir string) (bytes, files int64) {
	device, _, ok := blocks(dir)
	if !ok {
		return 0, 0
	}
	began := time.Now()
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil // it has just been removed
		}
		on, size, ok := blocks(path)
		if ok && on != device {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		bytes += size
		if files++; files%walkBatch == 0 {
			run.Pause(ctx, walkShare*time.Since(began))
			began = time.Now()
		}
		return nil
	})
	return bytes, files
}

// blocks returns the device of a file and the space that it takes.
func blocks(path string) (device uint64, size int64, ok bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, false
	}
	return stats.Blocks(info)
}
