package kubeletconfig

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// or sets a value that is not set.
func or[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// orNew sets a pointer that is nil.
func orNew[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

func orDuration(to *metav1.Duration, value time.Duration) { or(&to.Duration, value) }

// setDefaults sets upstream's defaults, by area.
func (c *Config) setDefaults() {
	k := &c.KubeletConfiguration
	c.evictionHard = k.EvictionHard
	k.APIVersion, k.Kind = apiVersion, kind
	serverDefaults(k)
	reportDefaults(k)
	podDefaults(k)
	resourceDefaults(k)
	imageDefaults(k)
	evictionDefaults(k)
	hostDefaults(k)
	reserve(k)
}

// mostProcessors is above the numbers of processors that Linux knows (NR_CPUS).
const mostProcessors = 1 << 14

// processors reads a list of processors such as 0-1,3.
func processors(text string) (cpuset.CPUSet, error) {
	for number := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '-' }) {
		if n, err := strconv.Atoi(number); err != nil || n >= mostProcessors { // the library holds every number of a range
			return cpuset.CPUSet{}, fmt.Errorf("not the number of a processor: %q", number)
		}
	}
	return cpuset.Parse(text)
}

// Reserved returns the processors of reservedSystemCPUs.
func (c *Config) Reserved() (cpuset.CPUSet, error) { return processors(c.ReservedSystemCPUs) }

// reserve has reservedSystemCPUs in place of the CPU of systemReserved and kubeReserved. What is wrong is left to validation.
func reserve(k *kubelet.KubeletConfiguration) {
	cpus, err := processors(k.ReservedSystemCPUs)
	if err != nil || cpus.IsEmpty() {
		return
	}
	const cpu = "cpu"
	k.KubeReserved = maps.Clone(k.KubeReserved)
	delete(k.KubeReserved, cpu)
	k.SystemReserved = maps.Clone(k.SystemReserved)
	if k.SystemReserved == nil {
		k.SystemReserved = map[string]string{}
	}
	k.SystemReserved[cpu] = strconv.Itoa(cpus.Size())
}

func serverDefaults(k *kubelet.KubeletConfiguration) {
	orNew(&k.EnableServer, true)
	or(&k.Address, "0.0.0.0")
	or(&k.Port, 10250)
	orNew(&k.Authentication.Anonymous.Enabled, false)
	orNew(&k.Authentication.Webhook.Enabled, true)
	orDuration(&k.Authentication.Webhook.CacheTTL, 2*time.Minute)
	or(&k.Authorization.Mode, kubelet.KubeletAuthorizationModeWebhook)
	orDuration(&k.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	orDuration(&k.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	orNew(&k.EnableDebuggingHandlers, true)
	orNew(&k.EnableSystemLogHandler, true)
	orNew(&k.EnableSystemLogQuery, false)
	orNew(&k.EnableProfilingHandler, true)
	orNew(&k.EnableDebugFlagsHandler, true)
	orNew(&k.HealthzPort, int32(10248))
	or(&k.HealthzBindAddress, "127.0.0.1")
	orDuration(&k.StreamingConnectionIdleTimeout, 4*time.Hour)
	or(&k.Logging.Format, "text")
	or(&k.Logging.FlushFrequency.Duration.Duration, 5*time.Second)
	k.Logging.FlushFrequency.SerializeAsString = true
}

func reportDefaults(k *kubelet.KubeletConfiguration) {
	orNew(&k.RegisterNode, true)
	orNew(&k.EventRecordQPS, int32(50))
	or(&k.EventBurst, 100)
	// A frequency of updates is one of reports, unless that is set as well.
	if k.NodeStatusUpdateFrequency.Duration != 0 {
		or(&k.NodeStatusReportFrequency, k.NodeStatusUpdateFrequency)
	}
	orDuration(&k.NodeStatusReportFrequency, 5*time.Minute)
	orDuration(&k.NodeStatusUpdateFrequency, 10*time.Second)
	or(&k.NodeLeaseDurationSeconds, 40)
	orNew(&k.NodeStatusMaxImages, int32(50))
	or(&k.ContentType, "application/vnd.kubernetes.protobuf")
	orNew(&k.KubeAPIQPS, int32(50))
	or(&k.KubeAPIBurst, 100)
}

func podDefaults(k *kubelet.KubeletConfiguration) {
	orDuration(&k.SyncFrequency, time.Minute)
	orDuration(&k.FileCheckFrequency, 20*time.Second)
	orDuration(&k.HTTPCheckFrequency, 20*time.Second)
	or(&k.MaxPods, 110)
	if k.PodPidsLimit != nil && *k.PodPidsLimit < 0 {
		*k.PodPidsLimit = -1
	}
	orNew(&k.PodPidsLimit, int64(-1)) // that of the node
	orNew(&k.ResolverConfig, "/etc/resolv.conf")
	or(&k.ConfigMapAndSecretChangeDetectionStrategy, kubelet.WatchChangeDetectionStrategy)
	orNew(&k.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 5 * time.Minute})
	or(&k.ContainerLogMaxSize, "10Mi")
	orNew(&k.ContainerLogMaxFiles, int32(5))
	orNew(&k.ContainerLogMaxWorkers, int32(1))
	orNew(&k.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	orNew(&k.SeccompDefault, false)
	orNew(&k.EnableControllerAttachDetach, true)
	orDuration(&k.VolumeStatsAggPeriod, time.Minute)
	or(&k.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	or(&k.PodLogsDir, "/var/log/pods")
}

func resourceDefaults(k *kubelet.KubeletConfiguration) {
	orNew(&k.CgroupsPerQOS, true)
	or(&k.CgroupDriver, "cgroupfs")
	orNew(&k.FailCgroupV1, false)
	orNew(&k.CPUCFSQuota, true)
	orNew(&k.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	or(&k.CPUManagerPolicy, "none")
	orDuration(&k.CPUManagerReconcilePeriod, 10*time.Second)
	or(&k.MemoryManagerPolicy, kubelet.NoneMemoryManagerPolicy)
	or(&k.MemoryReservationPolicy, kubelet.NoneMemoryReservationPolicy)
	or(&k.TopologyManagerPolicy, kubelet.NoneTopologyManagerPolicy)
	or(&k.TopologyManagerScope, kubelet.ContainerTopologyManagerScope)
	orNew(&k.FailSwapOn, false)
	orNew(&k.LocalStorageCapacityIsolation, true)
	if k.EnforceNodeAllocatable == nil {
		k.EnforceNodeAllocatable = []string{enforcePods}
	}
}

func imageDefaults(k *kubelet.KubeletConfiguration) {
	orNew(&k.RegistryPullQPS, int32(5))
	or(&k.RegistryBurst, 10)
	// Several pulls at once are not serialized, so one of the two fields is enough.
	orNew(&k.SerializeImagePulls, k.MaxParallelImagePulls == nil || *k.MaxParallelImagePulls < 2)
	or(&k.ImagePullCredentialsVerificationPolicy, kubelet.NeverVerifyPreloadedImages)
	orDuration(&k.ImageMinimumGCAge, 2*time.Minute)
	orNew(&k.ImageGCHighThresholdPercent, int32(85))
	orNew(&k.ImageGCLowThresholdPercent, int32(80))
}

// defaultThresholds are upstream's on Linux but for the free space of disks, of which upstream keeps 10 and 15 %: the disks of
// laptops and edge boxes are often fuller, and all pods would be evicted.
func defaultThresholds() map[string]string {
	return map[string]string{
		"memory.available": "100Mi", nodeSpace: keptOfDisk, "nodefs.inodesFree": "5%",
		imageSpace: keptOfDisk, "imagefs.inodesFree": "5%",
	}
}

// The signals of free space, and what of it is kept by default: keptOfDisk, and of large disks keptOfLarge.
const (
	nodeSpace, imageSpace   = "nodefs.available", "imagefs.available"
	keptOfDisk, keptOfLarge = "5%", "2Gi"
	largeDisk               = 40 << 30 // bytes; 5 % of it are 2Gi
)

// OnDisk returns the configuration for a node whose file systems have a capacity in bytes: 5 % of a large disk are more than pods
// need, so the default of evictionHard keeps 2Gi of it.
func (c *Config) OnDisk(capacity int64) *Config {
	if capacity <= largeDisk {
		return c
	}
	out := *c
	out.EvictionHard = maps.Clone(c.EvictionHard)
	for _, signal := range []string{nodeSpace, imageSpace} {
		if _, set := c.evictionHard[signal]; !set && out.EvictionHard[signal] == keptOfDisk {
			out.EvictionHard[signal] = keptOfLarge
		}
	}
	return &out
}

func evictionDefaults(k *kubelet.KubeletConfiguration) {
	orDuration(&k.EvictionPressureTransitionPeriod, 5*time.Minute)
	orNew(&k.MergeDefaultEvictionSettings, false)
	switch {
	case k.EvictionHard == nil:
		k.EvictionHard = defaultThresholds()
	case *k.MergeDefaultEvictionSettings:
		all := defaultThresholds()
		maps.Copy(all, k.EvictionHard)
		k.EvictionHard = all
	}
}

func hostDefaults(k *kubelet.KubeletConfiguration) {
	orNew(&k.OOMScoreAdj, int32(-999))
	orDuration(&k.RuntimeRequestTimeout, 2*time.Minute)
	or(&k.HairpinMode, kubelet.PromiscuousBridge)
	or(&k.MaxOpenFiles, 1_000_000)
	orNew(&k.MakeIPTablesUtilChains, true)
	orNew(&k.IPTablesMasqueradeBit, int32(14))
	orNew(&k.IPTablesDropBit, int32(15))
	or(&k.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
}
