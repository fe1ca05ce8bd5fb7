package stats

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

var noon = time.UnixMilli(1_800_000_000_500)

func amount(v uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: v} }

func containerOf(id, name string, cpu, memory uint64) *cri.ContainerStats {
	return &cri.ContainerStats{
		Attributes: &cri.ContainerAttributes{Id: id, Metadata: &cri.ContainerMetadata{Name: name}},
		Cpu:        &cri.CpuUsage{Timestamp: noon.UnixNano(), UsageCoreNanoSeconds: amount(cpu)},
		Memory:     &cri.MemoryUsage{Timestamp: noon.UnixNano(), WorkingSetBytes: amount(memory), UsageBytes: amount(memory + 1)},
	}
}

func sandboxOf(uid string, attempt uint32, containers ...*cri.ContainerStats) *cri.PodSandboxStats {
	var cpu, memory uint64
	for _, c := range containers {
		cpu += c.GetCpu().GetUsageCoreNanoSeconds().GetValue()
		memory += c.GetMemory().GetWorkingSetBytes().GetValue()
	}
	return &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{Metadata: &cri.PodSandboxMetadata{Uid: uid, Attempt: attempt}},
		Linux: &cri.LinuxPodSandboxStats{
			Cpu:        &cri.CpuUsage{Timestamp: noon.UnixNano(), UsageCoreNanoSeconds: amount(cpu)},
			Memory:     &cri.MemoryUsage{Timestamp: noon.UnixNano(), WorkingSetBytes: amount(memory)},
			Network:    &cri.NetworkUsage{Timestamp: noon.UnixNano(), DefaultInterface: &cri.NetworkInterfaceUsage{Name: "eth0", RxBytes: amount(7)}},
			Containers: containers,
		},
	}
}

func podOf(name string, uid types.UID, started map[string]time.Time) Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name, UID: uid}}
	p.Status.StartTime = new(metav1.NewTime(noon))
	return Pod{p, started}
}

func measured() Measured {
	return Measured{
		Node: statsapi.NodeStats{
			NodeName: "n1",
			CPU:      &statsapi.CPUStats{Time: metav1.NewTime(noon), UsageCoreNanoSeconds: new(uint64(12_500_000_000))},
			Memory:   &statsapi.MemoryStats{Time: metav1.NewTime(noon), WorkingSetBytes: new(uint64(1 << 30))},
			Fs:       &statsapi.FsStats{CapacityBytes: new(uint64(100)), AvailableBytes: new(uint64(60))},
		},
		Pods: []Pod{
			podOf("web", "u1", map[string]time.Time{"c1": noon.Add(-time.Minute), "c2": noon.Add(-time.Second)}),
			podOf("db", "u2", map[string]time.Time{}),
			podOf("pending", "u3", nil),
		},
		Sandboxes: []*cri.PodSandboxStats{
			sandboxOf("u1", 0, containerOf("c0", "web", 9e9, 99)),
			sandboxOf("u1", 1, containerOf("c2", "web", 1_500_000_000, 4096), containerOf("c1", "proxy", 250_000_000, 2048)),
			sandboxOf("u2", 0, containerOf("c9", "db", 5, 6)),
			sandboxOf("u9", 0, containerOf("c8", "stranger", 5, 6)),
		},
	}
}

// TestMetrics compares the metrics of a node with a file. Of the two sandboxes of a pod the later one counts; a container
// that the agent does not see running, and a pod that is not of the node, are left out.
func TestMetrics(t *testing.T) {
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(Metrics(Summarize(measured())))); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	failed := string(Metrics(nil))
	if !strings.Contains(failed, "\nscrape_error 1\n") || strings.Contains(failed, "node_cpu") {
		t.Errorf("after a failure: %s", failed)
	}
}

func TestSummaryOfFileSystemsAndNetwork(t *testing.T) {
	m := measured()
	m.Layers = []*cri.ContainerStats{{
		Attributes:    &cri.ContainerAttributes{Id: "c2"},
		WritableLayer: &cri.FilesystemUsage{Timestamp: noon.UnixNano(), UsedBytes: amount(30), InodesUsed: amount(3)},
	}}
	s := Summarize(m)
	if len(s.Pods) != 2 || s.Pods[0].PodRef.Name != "db" || s.Pods[1].PodRef != (statsapi.PodReference{Name: "web", Namespace: "ship", UID: "u1"}) {
		t.Fatalf("pods: %+v", s.Pods)
	}
	web := s.Pods[1]
	if n := web.Network; n == nil || n.Name != "eth0" || *n.RxBytes != 7 || len(n.Interfaces) != 1 {
		t.Errorf("network: %+v", n)
	}
	if fs := web.Containers[1].Rootfs; fs == nil || *fs.UsedBytes != 30 || *fs.InodesUsed != 3 || *fs.CapacityBytes != 100 || *fs.AvailableBytes != 60 {
		t.Errorf("root file system: %+v", fs)
	}
	if web.Containers[0].Rootfs != nil {
		t.Errorf("a root file system that was not measured: %+v", web.Containers[0].Rootfs)
	}
}

// TestSwap has the pod's swap as the sum of its containers', and no limit that one of them lacks.
func TestSwap(t *testing.T) {
	m := measured()
	m.Node.Swap = &statsapi.SwapStats{Time: metav1.NewTime(noon), SwapUsageBytes: new(uint64(900))}
	web := m.Sandboxes[1].Linux.Containers
	web[0].Swap = &cri.SwapUsage{Timestamp: noon.UnixNano(), SwapUsageBytes: amount(30), SwapAvailableBytes: amount(70)}
	web[1].Swap = &cri.SwapUsage{Timestamp: noon.UnixNano(), SwapUsageBytes: amount(4)}
	s := Summarize(m)
	if got := s.Pods[1].Swap; got == nil || *got.SwapUsageBytes != 34 || got.SwapAvailableBytes != nil || s.Pods[0].Swap != nil {
		t.Errorf("swap of pods: %+v, %+v", s.Pods[0].Swap, got)
	}
	text := string(Metrics(s))
	for _, want := range []string{
		`container_swap_limit_bytes{container="web",namespace="ship",pod="web"} 100 1800000000500`,
		`container_swap_usage_bytes{container="proxy",namespace="ship",pod="web"} 4 1800000000500`,
		`pod_swap_usage_bytes{namespace="ship",pod="web"} 34 1800000000500`,
		`node_swap_usage_bytes 900 1800000000500`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `container_swap_limit_bytes{container="proxy"`) {
		t.Error("a limit that there is not")
	}
}

func TestProcessors(t *testing.T) {
	busy, boot, err := processors("cpu  100 20 30 9999 50 6 4 1 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\nbtime 1700000000\n")
	if err != nil || busy != 160*10_000_000 || boot.Unix() != 1700000000 {
		t.Errorf("busy %d, booted %v, %v", busy, boot, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu x 1 1 1 1 1 1 1\n", "cpu 18446744073709551615 1 1 1 1 1 1 1\n", "cpu 1 1 1 1 1 1 1 1\nbtime soon\n"} {
		if _, _, err := processors(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestMemory(t *testing.T) {
	m, err := memory("MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\nAnonPages: 50 kB\n", noon)
	if err != nil || *m.UsageBytes != 700<<10 || *m.WorkingSetBytes != 500<<10 || *m.AvailableBytes != 500<<10 || *m.RSSBytes != 50<<10 {
		t.Errorf("%+v, %v", m, err)
	}
	// A kernel that contradicts itself does not make huge numbers.
	m, err = memory("MemTotal: 1 kB\nMemFree: 3 kB\nInactive(file): 9 kB\n", noon)
	if err != nil || *m.UsageBytes != 0 || *m.WorkingSetBytes != 0 || *m.AvailableBytes != 1<<10 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := memory("MemFree: 1 kB\n", noon); err == nil {
		t.Error("memory without a total is accepted")
	}
}

func TestMachineIsMeasured(t *testing.T) {
	s, err := OfMachine(t.TempDir(), noon)
	if err != nil {
		t.Fatal(err)
	}
	if *s.CPU.UsageCoreNanoSeconds == 0 || *s.Memory.WorkingSetBytes == 0 || *s.Fs.CapacityBytes == 0 || s.StartTime.IsZero() {
		t.Errorf("%+v", s)
	}
}

func TestNetworkCounters(t *testing.T) {
	n := networkOf("Inter-| Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n none0: 11 1 2 0 0 0 0 0 33 1 4 0 0 0 0 0\n", noon)
	if n == nil || len(n.Interfaces) != 1 || n.Name != "none0" || *n.RxBytes != 11 || *n.RxErrors != 2 || *n.TxBytes != 33 || *n.TxErrors != 4 {
		t.Errorf("%+v", n)
	}
}
