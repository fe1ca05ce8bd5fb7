package kubeletconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/sampan-io/sampan/node/cpumanager"
	"github.com/sampan-io/sampan/node/kubeletconfig"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestFaultsNameTheField(t *testing.T) {
	tests := []struct{ text, want string }{
		{"maxPods: many", "k.yaml: line 3 column 1: maxPods: is a string, want a number"},
		{"maxPod: 3", "k.yaml: line 3 column 1: maxPod: unknown field"},
		{"maxPods: -1", "k.yaml: line 3 column 1: maxPods: -1: must be >= 1"},
		{"memorySwap:\n  swapBehavior: All", `k.yaml: line 4 column 3: memorySwap.swapBehavior: "All": must be one of: "", "LimitedSwap" or "NoSwap"`},
		{"kubeReserved:\n  gpu: 1", ""},
		{"kubeReserved:\n  gpu: \"1\"", "must be one of cpu, memory, ephemeral-storage, pid"},
		{"systemReserved:\n  cpu: lots", "k.yaml: line 4 column 3: systemReserved.cpu: \"lots\": must be an amount"},
		{"evictionHard:\n  memory.available: 120%", "must be 0% to 100%"},
		{"evictionHard:\n  memory.free: 1Gi", "must be one of memory.available"},
		{"evictionSoft:\n  memory.available: 1Gi", "evictionSoftGracePeriod.memory.available"},
		{"evictionSoftGracePeriod:\n  memory.free: 1m", `k.yaml: line 4 column 3: evictionSoftGracePeriod.memory.free: "memory.free": must be one of memory.available`},
		{"imageGCHighThresholdPercent: 70", "imageGCLowThresholdPercent: 80: must be < imageGCHighThresholdPercent, which is 70"},
		{"serializeImagePulls: true\nmaxParallelImagePulls: 3", "k.yaml: line 4 column 1: maxParallelImagePulls: 3: must be 1 if serializeImagePulls is true"},
		{"containerLogMaxSize: big", "containerLogMaxSize: \"big\": must be a size > 0, such as 10Mi"},
		{"containerLogMaxFiles: 1", "containerLogMaxFiles: 1: must be >= 2"},
		{"podLogsDir: logs", `podLogsDir: "logs": must be an absolute path`},
		{"clusterDNS: [here]", "clusterDNS[0]: \"here\": must be an IP address"},
		{"registerWithTaints:\n- key: a\n  effect: Sometimes", "registerWithTaints[0].effect"},
		{"shutdownGracePeriodCriticalPods: 5s", "must be <= shutdownGracePeriod, which is 0s"},
		{"shutdownGracePeriod: 500ms", `k.yaml: line 3 column 1: shutdownGracePeriod: "500ms": must be 0s, or 1s to 24h0m0s`},
		{"shutdownGracePeriod: 2000000h", `shutdownGracePeriod: "2000000h0m0s": must be 0s, or 1s to 24h0m0s`},
		{"shutdownGracePeriodByPodPriority:\n- {priority: 1, shutdownGracePeriodSeconds: 86000}\n- {priority: 2, shutdownGracePeriodSeconds: 9000000000000}", "shutdownGracePeriodByPodPriority[1].shutdownGracePeriodSeconds: 9000000000000: must be 0 to 400"},
		{"shutdownGracePeriod: 5s\nshutdownGracePeriodByPodPriority:\n- {priority: 1, shutdownGracePeriodSeconds: 1}", "shutdownGracePeriodByPodPriority: 1: must be empty if"},
		{"nodeLeaseDurationSeconds: -3", "nodeLeaseDurationSeconds: -3: must be >= 1"},
		{"memoryThrottlingFactor: 1.5", "k.yaml: line 3 column 1: memoryThrottlingFactor: 1.5: must be > 0 and <= 1"},
		{"memoryThrottlingFactor: 0", "memoryThrottlingFactor: 0: must be > 0 and <= 1"},
		{"memoryReservationPolicy: Hard", `memoryReservationPolicy: "Hard": must be one of None, TieredReservation`},
		{"enforceNodeAllocatable: [pod]", `enforceNodeAllocatable[0]: "pod": must be one of pods, `},
		{"enforceNodeAllocatable: [none, pods]", `enforceNodeAllocatable: "none,pods": must have no other value beside none`},
		{"reservedSystemCPUs: 0-x", `reservedSystemCPUs: "0-x": must be a list of processors such as 0-1,3`},
		{"reservedSystemCPUs: 0-2000000000", "must be a list of processors"},
		{"reservedSystemCPUs: 3-1", "must be a list of processors"},
		{"reservedSystemCPUs: 0-1\nkubeReservedCgroup: /kube", "must not be set with systemReservedCgroup or kubeReservedCgroup"},
		{"cpuManagerPolicy: dynamic", `cpuManagerPolicy: "dynamic": must be one of none, static`},
		{"cpuManagerPolicy: static", `k.yaml: line 3 column 1: cpuManagerPolicy: "static": the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero`},
		{"cpuManagerReconcilePeriod: 1ms", `cpuManagerReconcilePeriod: "1ms": must be >= 1s`},
		{"cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}", "None policy: received unsupported options=map[full-pcpus-only:true]"},
		{"kubeReserved: {cpu: 1m}\ncpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: \"maybe\"}", `bad value for option "full-pcpus-only": strconv.ParseBool: parsing "maybe": invalid syntax`},
		{"kubeReserved: {cpu: 1m}\ncpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: \"true\"}", `CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided`},
		{"kubeReserved: {cpu: 1m}\ncpuManagerPolicy: static\ncpuManagerPolicyOptions: {fast: \"true\"}", `cpuManagerPolicyOptions.fast: "true": unknown CPU Manager Policy option: "fast"`},
		{"registerNode: false", "registerNode: false: must be true"},
		{"maxPods: 1\nmaxPods: 2", "line 4"},
	}
	for _, tt := range tests {
		_, err := kubeletconfig.Parse("k.yaml", []byte(head+tt.text+"\n"))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\n  got  %v\n  want %s", tt.text, err, tt.want)
		}
	}
	for _, text := range []string{"", "kind: Pod\napiVersion: v1", head + "---\n" + head, "[]"} {
		if _, err := kubeletconfig.Parse("k.yaml", []byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestFieldsWithoutEffectAreWarned(t *testing.T) {
	c, err := kubeletconfig.Parse("k.yaml", []byte(head+"maxPods: 50\nmemoryManagerPolicy: Static\nhairpinMode: promiscuous-bridge\nclusterDNS: [10.0.0.10]\n"+
		"enforceNodeAllocatable: [pods, kube-reserved]\nmergeDefaultEvictionSettings: true\ncrashLoopBackOff: {maxContainerRestartPeriod: 20s}\ncpuCFSQuota: false\nevictionSoftGracePeriod: {pid.available: 1m}\nmemoryThrottlingFactor: 0.9\nsingleProcessOOMKill: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"the field memoryManagerPolicy has no effect on this node",
		"the value pid.available of evictionSoftGracePeriod has no effect without one in evictionSoft", "the value kube-reserved of enforceNodeAllocatable has no effect on this node",
	}, c.Warnings); diff != "" {
		t.Error(diff)
	}
	if !c.Has("maxPods") || c.Has("maxOpenFiles") || c.MaxPods != 50 || *c.ImageGCHighThresholdPercent != 85 {
		t.Errorf("%+v", c)
	}
}

func TestDefaultsThatDependOnOthers(t *testing.T) {
	c, err := kubeletconfig.Parse("k.yaml", []byte(head+"nodeStatusUpdateFrequency: 20s\nmaxParallelImagePulls: 5\nmergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeStatusReportFrequency.Duration.Seconds() != 20 || *c.SerializeImagePulls || len(c.EvictionHard) != 5 || c.EvictionHard["memory.available"] != "1Gi" {
		t.Errorf("report %v, serialize %v, eviction %v", c.NodeStatusReportFrequency, *c.SerializeImagePulls, c.EvictionHard)
	}
}

func TestThresholdsOfLargeDisks(t *testing.T) {
	tests := []struct {
		text         string
		disk         int64
		node, images string
	}{
		{"", 40 << 30, "5%", "5%"},
		{"", 40<<30 + 1, "2Gi", "2Gi"},
		{"evictionHard: {memory.available: 1Gi}\n", 1 << 40, "", ""},
		{"mergeDefaultEvictionSettings: true\nevictionHard: {nodefs.available: 5%}\n", 1 << 40, "5%", "2Gi"},
	}
	for _, tt := range tests {
		c, err := kubeletconfig.Parse("k.yaml", []byte(head+tt.text))
		if err != nil {
			t.Fatal(err)
		}
		got := c.OnDisk(tt.disk)
		if got.EvictionHard["nodefs.available"] != tt.node || got.EvictionHard["imagefs.available"] != tt.images {
			t.Errorf("%q on %d: %v, want %s and %s", tt.text, tt.disk, got.EvictionHard, tt.node, tt.images)
		}
		if got != c && c.EvictionHard["imagefs.available"] == "2Gi" {
			t.Errorf("%q: the configuration itself was changed", tt.text)
		}
	}
}

func TestAllocatable(t *testing.T) {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), "hugepages-2Mi": resource.MustParse("100Mi"),
	}
	tests := []struct{ text, cpu, memory, disk string }{
		{"", "2", "824Mi", "95Gi"},
		{"kubeReserved: {cpu: 100m, memory: 24Mi}\nsystemReserved: {cpu: 400m}\n", "1500m", "800Mi", "95Gi"},
		{"evictionHard: {memory.available: 50%}\n", "2", "412Mi", "100Gi"},
		{"kubeReserved: {cpu: 100m, memory: 24Mi}\nsystemReserved: {cpu: 400m}\nreservedSystemCPUs: 0,2-3\n", "0", "800Mi", "95Gi"},
		{"reservedSystemCPUs: \"1\"\n", "1", "824Mi", "95Gi"},
		{"systemReserved: {memory: 9Gi, cpu: \"3\"}\n", "0", "0", "95Gi"},
	}
	for _, tt := range tests {
		c, err := kubeletconfig.Parse("k.yaml", []byte(head+tt.text))
		if err != nil {
			t.Fatal(err)
		}
		a := c.Allocatable(capacity)
		for name, want := range map[corev1.ResourceName]string{corev1.ResourceCPU: tt.cpu, corev1.ResourceMemory: tt.memory, corev1.ResourceEphemeralStorage: tt.disk, corev1.ResourcePods: "110"} {
			if got := a[name]; got.Cmp(resource.MustParse(want)) != 0 {
				t.Errorf("%q: %s is %s, want %s", tt.text, name, got.String(), want)
			}
		}
	}
}

func TestEnforced(t *testing.T) {
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("100Mi")}
	const reserved = "kubeReserved: {cpu: 500m, memory: 24Mi}\nsystemReserved: {memory: 200Mi}\n"
	for _, tt := range []struct{ text, cpu, memory string }{
		{"", "2", "1Gi"}, // what evictionHard keeps free is not taken away from pods that run
		{reserved, "1500m", "800Mi"},
		{reserved + "enforceNodeAllocatable: [none]\n", "2", "1Gi"},
	} {
		c, err := kubeletconfig.Parse("k.yaml", []byte(head+tt.text))
		if err != nil {
			t.Fatal(err)
		}
		if e := c.Enforced(capacity); e.Cpu().Cmp(resource.MustParse(tt.cpu)) != 0 || e.Memory().Cmp(resource.MustParse(tt.memory)) != 0 {
			t.Errorf("%q: %s of CPU and %s of memory, want %s and %s", tt.text, e.Cpu(), e.Memory(), tt.cpu, tt.memory)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(head + "maxPods: 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := kubeletconfig.Parse("k.yaml", []byte(text))
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
	})
}

func TestReservedProcessorsAreThoseOfTheMachine(t *testing.T) {
	online, err := cpumanager.Online(cpumanager.Directory)
	if err != nil {
		t.Fatal(err)
	}
	for cpus, want := range map[string]string{
		"16383":         `line 3 column 1: reservedSystemCPUs: "16383": must be processors that are online: ` + online.String(),
		online.String(): "must leave a processor for pods: " + online.String() + " are online",
	} {
		file := filepath.Join(t.TempDir(), "k.yaml")
		if err := os.WriteFile(file, []byte(head+"reservedSystemCPUs: \""+cpus+"\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := kubeletconfig.Load(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  got  %v\n  want %s", cpus, err, want)
		}
	}
}

func TestStaticPolicyReservesProcessors(t *testing.T) {
	for text, want := range map[string]cpumanager.Options{
		"kubeReserved: {cpu: 700m}\nsystemReserved: {cpu: 400m}":                                                       {Amount: 2},
		"kubeReserved: {cpu: 4000m}\nreservedSystemCPUs: \"1\"":                                                        {Amount: 1, Reserved: cpuset.New(1)},
		"kubeReserved: {cpu: 1m}\ncpuManagerPolicyOptions: {full-pcpus-only: \"true\"}":                                {Amount: 1, WholeCores: true},
		"kubeReserved: {cpu: 1000m}\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"1\", full-pcpus-only: \"f\"}": {Amount: 1, Strict: true},
	} {
		c, err := kubeletconfig.Parse("k.yaml", []byte(head+"cpuManagerPolicy: static\n"+text+"\n"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, c.CPUManager(), cmp.Comparer(func(a, b cpuset.CPUSet) bool { return a.String() == b.String() })); diff != "" || len(c.Warnings) != 0 {
			t.Errorf("%s: %s %q", text, diff, c.Warnings)
		}
	}
}
