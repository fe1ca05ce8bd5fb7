package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkPodStart measures a pod from RunPodSandbox to the end of StartContainer
// beside the floor that it stands on: libcontainer alone starting the same program
// with a plain configuration, namespaces of its own and no network.
func BenchmarkPodStart(b *testing.B) {
	n := newNode(b).start().withDemo()
	k := n.kit()
	bare := newBare(b, n)
	var pods, floors, sandbox, create time.Duration
	i := 0
	for b.Loop() {
		i++
		start := time.Now()
		bare.start(b, i)
		middle := time.Now()
		p := k.PodConfig(fmt.Sprintf("bench-%d", i))
		pod, err := n.runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: p})
		if err != nil {
			b.Fatal(err)
		}
		made := time.Now()
		id := k.Create(pod.GetPodSandboxId(), p, k.ContainerConfig("main", "sleep"))
		created := time.Now()
		k.Start(id)
		pods += time.Since(middle)
		sandbox += made.Sub(middle)
		create += created.Sub(made)
		floors += middle.Sub(start)
		if _, err := n.runtime.RemovePodSandbox(k.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: pod.GetPodSandboxId()}); err != nil {
			b.Fatal(err)
		}
		bare.end(b)
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(i) }
	b.ReportMetric(float64(pods)/float64(floors), "x/bare-start")
	b.ReportMetric(ms(pods), "ms/pod")
	b.ReportMetric(ms(sandbox), "ms/sandbox")
	b.ReportMetric(ms(create), "ms/create")
	b.ReportMetric(ms(floors), "ms/bare-start")
}

// bare starts containers with libcontainer and nothing else.
type bare struct {
	dir, rootfs, cgroup string
	now                 *libcontainer.Container
	proc                *libcontainer.Process
}

func newBare(b *testing.B, n *node) *bare {
	b.Helper()
	rootfs := filepath.Join(b.TempDir(), "rootfs")
	for _, d := range []string{"bin", "dev", "proc", "sys"} {
		if err := os.MkdirAll(filepath.Join(rootfs, d), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(rootfs, "bin", "demo"), built.demo, 0o755); err != nil {
		b.Fatal(err)
	}
	return &bare{dir: b.TempDir(), rootfs: rootfs, cgroup: "/" + n.name + "-bare"}
}

func (f *bare) start(b *testing.B, i int) {
	b.Helper()
	spec := specconv.Example()
	spec.Root.Path, spec.Root.Readonly = f.rootfs, false
	spec.Process.Args = []string{"/bin/demo", "sleep"}
	spec.Linux.CgroupsPath = fmt.Sprintf("%s-%d", f.cgroup, i)
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{Spec: spec, NoNewKeyring: true})
	if err != nil {
		b.Fatal(err)
	}
	if f.now, err = libcontainer.Create(f.dir, fmt.Sprintf("bare-%d", i), config); err != nil {
		b.Fatal(err)
	}
	f.proc = &libcontainer.Process{Args: spec.Process.Args, Cwd: "/", Init: true}
	if err := f.now.Run(f.proc); err != nil {
		b.Fatal(err)
	}
}

func (f *bare) end(b *testing.B) {
	b.Helper()
	if err := f.now.Signal(os.Kill); err != nil {
		b.Fatal(err)
	}
	_, _ = f.proc.Wait()
	if err := f.now.Destroy(); err != nil {
		b.Fatal(err)
	}
}
