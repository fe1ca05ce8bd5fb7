package stats

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestCadvisor has samples of the node, of a pod and of a container, each with its labels.
func TestCadvisor(t *testing.T) {
	m := measured()
	m.Node.Network = &statsapi.NetworkStats{Interfaces: []statsapi.InterfaceStats{{Name: `a"b`, RxBytes: new(uint64(3))}}}
	web := m.Pods[0].Pod
	web.Status.QOSClass = corev1.PodQOSBurstable
	web.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", ContainerID: "containerd://c2", Image: "demo:v1"}}
	web.Spec.Containers = []corev1.Container{{Name: "web", Resources: corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Mi")},
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
	}}}
	info := Machine{Info: corev1.NodeSystemInfo{BootID: "b", MachineID: "m", SystemUUID: "s"}, Processors: 4, Memory: 1 << 30}
	metric := func(name string, value uint64, more ...string) *cri.Metric {
		base := []string{"web", "/sampan/c2", "demo", "c2", "ship", "web"}
		return &cri.Metric{Name: name, MetricType: cri.MetricType_COUNTER, LabelValues: append(base, more...), Value: amount(value)}
	}
	own := RuntimeMetrics{
		Descriptors: []*cri.MetricDescriptor{
			{Name: "container_memory_rss", Help: "Twice.", LabelKeys: subjectKeys},
			{Name: "container_oom_events_total", Help: "Kills.", LabelKeys: subjectKeys},
			{Name: "container_fs_reads_total", Help: "Reads.", LabelKeys: append(subjectKeys[:6:6], "device")},
		},
		Pods: []*cri.PodSandboxMetrics{{ContainerMetrics: []*cri.ContainerMetrics{
			{ContainerId: "c2", Metrics: []*cri.Metric{metric("container_memory_rss", 1), metric("container_oom_events_total", 2), metric("container_fs_reads_total", 3, `/dev/"sda`)}},
			{ContainerId: "other", Metrics: []*cri.Metric{metric("container_oom_events_total", 9)}},
		}}},
	}
	text := string(Cadvisor(Summarize(m), m.Pods, info, own))
	const of = `container="web",id="/kubepods/burstable/podu1/c2",image="demo:v1",name="c2",namespace="ship",pod="web"`
	for _, want := range []string{
		"container_cpu_usage_seconds_total{" + of + `,cpu="total"} 1.5 1800000000500`,
		"container_memory_working_set_bytes{" + of + "} 4096 1800000000500",
		"container_spec_cpu_quota{" + of + "} 50000",
		"container_spec_cpu_shares{" + of + "} 256",
		"container_spec_memory_limit_bytes{" + of + "} 1.048576e+06",
		`container_cpu_usage_seconds_total{container="",id="/kubepods/burstable/podu1",image="",name="",namespace="ship",pod="web",cpu="total"} 1.75 1800000000500`,
		`container_network_receive_bytes_total{container="",id="/kubepods/burstable/podu1",image="",name="",namespace="ship",pod="web",interface="eth0"} 7 1800000000500`,
		`container_cpu_usage_seconds_total{container="",id="/",image="",name="",namespace="",pod="",cpu="total"} 12.5 1800000000500`,
		`,interface="a\"b"} 3`,
		`machine_cpu_cores{boot_id="b",machine_id="m",system_uuid="s"} 4`,
		"container_scrape_error 0",
		"# TYPE container_oom_events_total counter\ncontainer_oom_events_total{" + of + "} 2",
		"container_fs_reads_total{" + of + `,device="/dev/\"sda"} 3`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") && !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s in\n%s", want, text)
		}
	}
	begun := map[string]bool{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); f[0] == "#" && f[1] == "TYPE" {
			if begun[f[2]] {
				t.Errorf("%s begins twice", f[2])
			}
			begun[f[2]] = true
		}
	}
	if failed := string(Cadvisor(nil, nil, info, own)); !strings.Contains(failed, "\ncontainer_scrape_error 1\n") || !strings.Contains(failed, "machine_cpu_cores") {
		t.Errorf("after a failure: %s", failed)
	}
}

// The ephemeral storage of a pod is its logs, its volumes on disk and its writable layers.
func TestSummaryOfFiles(t *testing.T) {
	m := measured()
	m.Layers = []*cri.ContainerStats{{Attributes: &cri.ContainerAttributes{Id: "c2"}, WritableLayer: &cri.FilesystemUsage{UsedBytes: amount(30), InodesUsed: amount(3)}}}
	m.Files = map[types.UID]*Files{"u1": {
		Volumes: []statsapi.VolumeStats{{Name: "data"}}, Logs: map[string]*statsapi.FsStats{"web": {UsedBytes: new(uint64(5))}}, Ephemeral: Space{12, 2},
	}}
	web := Summarize(m).Pods[1]
	if e := web.EphemeralStorage; e == nil || *e.UsedBytes != 42 || *e.InodesUsed != 5 || *e.CapacityBytes != 100 {
		t.Errorf("ephemeral storage: %+v", e)
	}
	if len(web.VolumeStats) != 1 || *web.Containers[1].Logs.UsedBytes != 5 || web.Containers[0].Logs != nil {
		t.Errorf("%+v", web)
	}
}

func TestDirectoriesAreMeasured(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	one, err := OfDirectory(t.Context(), dir)
	if err != nil || one.Bytes < 1<<20 || one.Inodes != 2 {
		t.Errorf("%+v, %v", one, err)
	}
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if two, err := OfDirectory(t.Context(), dir); err != nil || two != one {
		t.Errorf("with a second name of the file: %+v, %v, want %+v", two, err, one)
	}
	if none, err := OfDirectory(t.Context(), filepath.Join(dir, "none")); err != nil || none != (Space{}) {
		t.Errorf("no directory: %+v, %v", none, err)
	}
}

func TestSockets(t *testing.T) {
	text := "processor\t: 0\nphysical id\t: 0\ncore id\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t: 1\n\nprocessor\t: 2\nphysical id\t: 1\ncore id\t: 0\n"
	if sockets, cores := socketsOf(text); sockets != 2 || cores != 3 {
		t.Errorf("%d sockets, %d cores", sockets, cores)
	}
}
