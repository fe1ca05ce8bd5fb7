package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node"
	"github.com/sampan-io/sampan/node/cpumanager"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// A pinning runtime is a simulated one that records the processors of containers, by name.
type pinning struct {
	*simulated.Runtime

	mu    sync.Mutex
	cpus  map[string]string // guarded by mu
	quota map[string]int64  // guarded by mu; at the creation
	fail  int               // guarded by mu; so many changes fail
}

func (p *pinning) CreateContainer(ctx context.Context, sandbox string, c *cri.ContainerConfig, s *cri.PodSandboxConfig) (string, error) {
	p.mu.Lock()
	r := c.GetLinux().GetResources()
	p.cpus[c.GetMetadata().GetName()], p.quota[c.GetMetadata().GetName()] = r.GetCpusetCpus(), r.GetCpuQuota()
	p.mu.Unlock()
	return p.Runtime.CreateContainer(ctx, sandbox, c, s)
}

func (p *pinning) UpdateContainerResources(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	status, err := p.ContainerStatus(ctx, id)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail > 0 {
		p.fail--
		return errors.New("the cgroup is busy")
	}
	p.cpus[status.GetMetadata().GetName()] = r.GetCpusetCpus()
	return nil
}

// want waits until containers have processors.
func (p *pinning) want(t *testing.T, what string, want map[string]string) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, cpus := range want {
		if p.cpus[name] != cpus {
			t.Errorf("%s: container %s has the processors %q, want %q", what, name, p.cpus[name], cpus)
		}
	}
}

// four returns the policy of a machine with four processors, of which one is reserved.
func four(t *testing.T) *cpumanager.Static {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "online"), []byte("0-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	machine, err := cpumanager.Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cpumanager.New(machine, cpumanager.Options{Amount: 1})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pinnedPod returns a Guaranteed pod with one container of its name.
func pinnedPod(name, cpu string) *corev1.Pod {
	return webPod(name, func(p *corev1.Pod) {
		all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Mi")}
		p.Spec.Containers[0].Name, p.Spec.Containers[0].Resources = name, corev1.ResourceRequirements{Requests: all, Limits: all}
		p.Status.QOSClass = corev1.PodQOSGuaranteed
	})
}

func TestContainersGetTheirProcessors(t *testing.T) {
	machine, restarted := four(t), four(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := &pinning{Runtime: r.rt, cpus: map[string]string{}, quota: map[string]int64{}}
		r.opts.Runtime, r.opts.Capacity = p, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
		r.before = func(n *node.Node) { n.SetProcessors(machine) }
		stop := r.start()
		<-r.node.Ready()
		r.create(webPod("web"))
		r.await("web", "ready", isReady)
		p.want(t, "no exclusive ones", map[string]string{"web": "0-3"})
		r.create(pinnedPod("first", "1"))
		r.await("first", "ready", isReady)
		p.mu.Lock()
		p.fail = 1
		p.mu.Unlock()
		r.create(pinnedPod("second", "2"))
		r.await("second", "ready", isReady)
		p.want(t, "a change that failed", map[string]string{"first": "1", "second": "2-3", "web": "0,2-3"})
		r.create(pinnedPod("part", "1500m"))
		r.await("part", "ready", isReady)
		time.Sleep(10 * time.Second) // of the bubble: cpuManagerReconcilePeriod
		p.want(t, "three exclusive ones", map[string]string{"first": "1", "second": "2-3", "web": "0", "part": "0"})
		if p.quota["second"] != 0 || p.quota["part"] != 150_000 {
			t.Errorf("quotas %v, want one for shared processors alone", p.quota)
		}

		r.create(pinnedPod("large", "2"))
		failed := r.await("large", "rejected", inPhase(corev1.PodFailed))
		if want := "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=2, available=0, which is unexpected"; failed.Status.Reason != "UnexpectedAdmissionError" || failed.Status.Message != want {
			t.Errorf("rejected with %s: %s", failed.Status.Reason, failed.Status.Message)
		}
		for metric, want := range map[string]float64{
			"kubelet_cpu_manager_exclusive_cpu_allocation_count": 3, "kubelet_cpu_manager_shared_pool_size_millicores": 0,
			"kubelet_cpu_manager_pinning_requests_total": 3, "kubelet_cpu_manager_pinning_errors_total": 1,
		} {
			if got := r.node.Metric(t, metric, nil); got != want {
				t.Errorf("%s is %v, want %v", metric, got, want)
			}
		}

		r.remove("first")
		r.await("first", "gone", gone)
		p.want(t, "after the end of first", map[string]string{"second": "2-3", "web": "0-1", "part": "0-1"})
		stop()

		// Another agent finds the processors in the runtime.
		r.before = func(n *node.Node) { n.SetProcessors(restarted) }
		defer r.start()()
		<-r.node.Ready()
		p.want(t, "after a restart", map[string]string{"second": "2-3", "web": "0-1", "part": "0-1"})
		r.create(pinnedPod("third", "1"))
		r.await("third", "ready", isReady)
		p.want(t, "after a restart", map[string]string{"second": "2-3", "third": "1", "web": "0", "part": "0"})
	})
}
