package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/stats"
)

// imageFiles measures the file systems of images and of containers.
type imageFiles interface {
	ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
}

// A Meter is a [criclient.Runtime] that knows what its node uses. Without one, a node uses what this machine does.
type Meter interface {
	OfMachine(now time.Time) (statsapi.NodeStats, error)
}

// measure returns what the node, its pods and their containers use now, with file systems if asked for. Writable layers may
// have been measured at most age ago.
func (k *Server) measure(ctx context.Context, files bool, age time.Duration) (*statsapi.Summary, error) {
	m := stats.Measured{}
	var err error
	now := time.Now()
	if meter, ok := k.opts.Runtime.(Meter); ok {
		m.Node, err = meter.OfMachine(now)
	} else {
		m.Node, err = stats.OfMachine(cmp.Or(k.opts.RootDir, "/"), now)
	}
	if err != nil {
		return nil, err
	}
	m.Node.NodeName = k.opts.Name
	if _, simulated := k.opts.Runtime.(Meter); !simulated {
		m.Process.CPU, m.Process.Memory = stats.OfProcess(now)
	}
	if m.Sandboxes, err = k.sandboxStats(ctx); err != nil {
		return nil, fmt.Errorf("stats of pods: %w", err)
	}
	for w := range k.opts.Pods {
		state, _ := w.Status()
		if state.Pod.Name == "" || state.Over {
			continue
		}
		p := stats.Pod{Pod: state.Pod, Started: map[string]time.Time{}}
		for _, c := range state.Containers {
			if c.State == lifecycle.Running {
				p.Started[c.ID] = c.StartedAt
			}
		}
		m.Pods = append(m.Pods, p)
	}
	if !files {
		m.Node.Fs = nil
		return stats.Summarize(m), nil
	}
	if m.Layers, err = k.writableLayers(ctx, age); err != nil {
		return nil, fmt.Errorf("stats of containers: %w", err)
	}
	m.Files = k.opts.Files.Usage(ctx, m.Pods, now)
	m.Node.Runtime = k.imageUsage(ctx, m.Node.Fs, now)
	return stats.Summarize(m), nil
}

// sandboxStats returns the stats of the node's pods. A runtime of others that only has those of containers gives sandboxes
// whose use is the sum of that of their containers, without a network.
func (k *Server) sandboxStats(ctx context.Context) ([]*cri.PodSandboxStats, error) {
	all, err := k.opts.Runtime.ListPodSandboxStats(ctx, nil)
	if err == nil || k.opts.Owner == "" || ctx.Err() != nil {
		return all, err
	}
	// containerd before 1.7 fails for all pods if there is one without a cgroup of its own.
	k.opts.Log.Debug("stats of pods not available, using those of containers", "err", err)
	containers, err := k.writableLayers(ctx, 0)
	if err != nil {
		return nil, err
	}
	byPod := map[string]*cri.PodSandboxStats{}
	for _, c := range containers {
		uid := c.GetAttributes().GetLabels()[crispec.PodUID]
		s := byPod[uid]
		if s == nil {
			s = &cri.PodSandboxStats{Attributes: &cri.PodSandboxAttributes{Metadata: &cri.PodSandboxMetadata{Uid: uid}}, Linux: &cri.LinuxPodSandboxStats{}}
			byPod[uid] = s
			all = append(all, s)
		}
		s.Linux.Containers = append(s.Linux.Containers, c)
		addUsage(s.Linux, c)
	}
	return all, nil
}

// addUsage adds the use of a container to that of its pod.
func addUsage(pod *cri.LinuxPodSandboxStats, c *cri.ContainerStats) {
	if pod.Cpu == nil {
		pod.Cpu, pod.Memory = &cri.CpuUsage{UsageCoreNanoSeconds: &cri.UInt64Value{}}, &cri.MemoryUsage{WorkingSetBytes: &cri.UInt64Value{}, UsageBytes: &cri.UInt64Value{}}
	}
	pod.Cpu.Timestamp, pod.Memory.Timestamp = c.GetCpu().GetTimestamp(), c.GetMemory().GetTimestamp()
	pod.Cpu.UsageCoreNanoSeconds.Value += c.GetCpu().GetUsageCoreNanoSeconds().GetValue()
	pod.Memory.WorkingSetBytes.Value += c.GetMemory().GetWorkingSetBytes().GetValue()
	pod.Memory.UsageBytes.Value += c.GetMemory().GetUsageBytes().GetValue()
}

// imageUsage returns the use of the file systems of images and of writable layers; nil if the runtime does not say.
func (k *Server) imageUsage(ctx context.Context, fs *statsapi.FsStats, now time.Time) *statsapi.RuntimeStats {
	rt, ok := k.opts.Runtime.(imageFiles)
	if !ok {
		return nil
	}
	r, err := rt.ImageFsInfo(ctx)
	if err != nil || len(r.GetImageFilesystems()) == 0 {
		return nil
	}
	of := func(u *cri.FilesystemUsage) *statsapi.FsStats {
		on := fs
		if dir := u.GetFsId().GetMountpoint(); dir != "" {
			if at := stats.OfFileSystem(dir, now); at != nil {
				on = at
			}
		}
		return stats.Space{Bytes: u.GetUsedBytes().GetValue(), Inodes: u.GetInodesUsed().GetValue()}.On(on, now)
	}
	out := &statsapi.RuntimeStats{ImageFs: of(r.GetImageFilesystems()[0])}
	out.ContainerFs = out.ImageFs
	if len(r.GetContainerFilesystems()) > 0 {
		out.ContainerFs = of(r.GetContainerFilesystems()[0])
	}
	return out
}

// resourceMetrics answers with CPU and memory as metrics. As in upstream's kubelet an error is one of the metrics.
func (k *Server) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	summary, err := k.measure(r.Context(), false, 0)
	if err != nil {
		k.opts.Log.Warn("the usage of resources could not be measured", "err", err)
		summary = nil
	}
	w.Header().Set("Content-Type", stats.ContentType)
	_, _ = w.Write(stats.Metrics(summary)) // a client that has gone needs no answer
}

// statsSummary answers with a summary, without file systems if the client asks for CPU and memory only.
func (k *Server) statsSummary(w http.ResponseWriter, r *http.Request) {
	only := false
	if text := r.URL.Query().Get("only_cpu_and_memory"); text != "" {
		var err error
		if only, err = strconv.ParseBool(text); err != nil {
			answer(w, refuse(http.StatusBadRequest, "only_cpu_and_memory=%q: want true or false", text))
			return
		}
	}
	summary, err := k.measure(r.Context(), !only, 0)
	if err != nil {
		answer(w, err)
		return
	}
	k.rates.Fill(summary)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(summary)
}

// layers holds the last stats of containers with their writable layers: to measure these a runtime reads directories.
type layers struct {
	mu  sync.Mutex
	all []*cri.ContainerStats // guarded by mu
	at  time.Time             // guarded by mu; when they were measured
}

// writableLayers returns the stats of containers with their writable layers, not older than age.
func (k *Server) writableLayers(ctx context.Context, age time.Duration) ([]*cri.ContainerStats, error) {
	u := &k.layers
	u.mu.Lock()
	layers, at := u.all, u.at
	u.mu.Unlock()
	now := time.Now()
	if layers != nil && now.Sub(at) < age {
		return layers, nil
	}
	layers, err := k.opts.Runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	u.all, u.at = layers, now
	u.mu.Unlock()
	return layers, nil
}
