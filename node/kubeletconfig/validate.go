package kubeletconfig

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/sampan-io/sampan/internal/quantity"
	"github.com/sampan-io/sampan/node/cpumanager"
)

// Values of memorySwap.swapBehavior; the empty one means NoSwap.
const (
	NoSwap      = "NoSwap"
	LimitedSwap = "LimitedSwap"
)

// TieredReservation is the value of memoryReservationPolicy that protects the memory of pods.
const TieredReservation = kubelet.TieredReservationMemoryReservationPolicy

// StaticPolicy is the value of cpuManagerPolicy by which containers get processors for themselves.
const StaticPolicy = "static"

// faults collects what is wrong.
type faults struct{ field.ErrorList }

func (f *faults) add(path string, value any, format string, args ...any) {
	f.ErrorList = append(f.ErrorList, field.Invalid(field.NewPath(path), value, fmt.Sprintf(format, args...)))
}

// atLeast checks a number.
func (f *faults) atLeast(path string, value, least int64) {
	if value < least {
		f.add(path, value, "must be >= %d", least)
	}
}

func (f *faults) between(path string, value, least, most int64) {
	if value < least || value > most {
		f.add(path, value, "must be %d to %d", least, most)
	}
}

func (f *faults) duration(path string, value, least time.Duration) {
	if value < least {
		f.add(path, value.String(), "must be >= %v", least)
	}
}

func (f *faults) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		f.add(path, value, "must be one of %s", strings.Join(allowed, ", "))
	}
}

// validate checks a configuration that has its defaults, for a machine with these processors; none means any machine.
func (c *Config) validate(online cpuset.CPUSet) field.ErrorList {
	var f faults
	c.checkServer(&f)
	c.checkReports(&f)
	c.checkPods(&f)
	c.checkProcessors(&f, online)
	c.checkPolicy(&f)
	c.checkImages(&f)
	c.checkReserved(&f, "systemReserved", c.SystemReserved)
	c.checkReserved(&f, "kubeReserved", c.KubeReserved)
	c.checkEviction(&f)
	c.checkShutdown(&f)
	return f.ErrorList
}

func (c *Config) checkServer(f *faults) {
	f.between("port", int64(c.Port), 1, 65535)
	f.between("readOnlyPort", int64(c.ReadOnlyPort), 0, 65535)
	f.between("healthzPort", int64(*c.HealthzPort), 0, 65535)
	f.between("oomScoreAdj", int64(*c.OOMScoreAdj), -1000, 1000)
	if _, err := netip.ParseAddr(c.HealthzBindAddress); err != nil {
		f.add("healthzBindAddress", c.HealthzBindAddress, "must be an IP address")
	}
	if !*c.EnableServer {
		f.add("enableServer", false, "must be true: the API server needs the node's API for logs and metrics")
	}
	if *c.Authentication.Anonymous.Enabled {
		f.add("authentication.anonymous.enabled", true, "must be false: every request needs a permission")
	}
	f.oneOf("authorization.mode", string(c.Authorization.Mode), "Webhook")
	for i, value := range c.EnforceNodeAllocatable {
		f.oneOf(fmt.Sprintf("enforceNodeAllocatable[%d]", i), value, enforcePods, "system-reserved", "kube-reserved", "system-reserved-compressible", "kube-reserved-compressible", enforceNothing)
	}
	if n := len(c.EnforceNodeAllocatable); n > 1 && slices.Contains(c.EnforceNodeAllocatable, enforceNothing) {
		f.add("enforceNodeAllocatable", strings.Join(c.EnforceNodeAllocatable, ","), "must have no other value beside %s", enforceNothing)
	}
	f.oneOf("cgroupDriver", c.CgroupDriver, "cgroupfs", "systemd")
}

func (c *Config) checkReports(f *faults) {
	f.duration("nodeStatusUpdateFrequency", c.NodeStatusUpdateFrequency.Duration, time.Second)
	f.duration("nodeStatusReportFrequency", c.NodeStatusReportFrequency.Duration, time.Second)
	f.atLeast("nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 1)
	f.atLeast("nodeStatusMaxImages", int64(*c.NodeStatusMaxImages), -1)
	if !*c.RegisterNode {
		f.add("registerNode", false, "must be true: the agent makes the Node object of this cluster")
	}
	for i, t := range c.RegisterWithTaints {
		path := fmt.Sprintf("registerWithTaints[%d]", i)
		for _, e := range validation.IsQualifiedName(t.Key) {
			f.add(path+".key", t.Key, "%s", e)
		}
		if t.Value != "" {
			for _, e := range validation.IsValidLabelValue(t.Value) {
				f.add(path+".value", t.Value, "%s", e)
			}
		}
		f.oneOf(path+".effect", string(t.Effect), string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute))
	}
}

func (c *Config) checkPods(f *faults) {
	f.atLeast("maxPods", int64(c.MaxPods), 1)
	f.atLeast("podsPerCore", int64(c.PodsPerCore), 0)
	if !filepath.IsAbs(c.PodLogsDir) {
		f.add("podLogsDir", c.PodLogsDir, "must be an absolute path")
	}
	for i, a := range c.ClusterDNS {
		if _, err := netip.ParseAddr(a); err != nil {
			f.add(fmt.Sprintf("clusterDNS[%d]", i), a, "must be an IP address")
		}
	}
	if c.ClusterDomain != "" {
		for _, e := range validation.IsDNS1123Subdomain(strings.TrimSuffix(c.ClusterDomain, ".")) {
			f.add("clusterDomain", c.ClusterDomain, "%s", e)
		}
	}
	if size, err := quantity.Parse(c.ContainerLogMaxSize); err != nil || size.Value() <= 0 {
		f.add("containerLogMaxSize", c.ContainerLogMaxSize, "must be a size > 0, such as 10Mi")
	}
	f.atLeast("containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2)
	f.atLeast("containerLogMaxWorkers", int64(*c.ContainerLogMaxWorkers), 1)
	f.duration("containerLogMonitorInterval", c.ContainerLogMonitorInterval.Duration, 3*time.Second)
	back := c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	if back < time.Second || back > 5*time.Minute {
		f.add("crashLoopBackOff.maxContainerRestartPeriod", back.String(), "must be 1s to 5m")
	}
	if b := c.MemorySwap.SwapBehavior; b != "" && b != LimitedSwap && b != NoSwap {
		f.add("memorySwap.swapBehavior", b, "must be one of: \"\", %q or %q", LimitedSwap, NoSwap)
	}
	if m := c.MemoryThrottlingFactor; m != nil && (*m <= 0 || *m > 1) {
		f.add("memoryThrottlingFactor", *m, "must be > 0 and <= 1")
	}
	f.oneOf("memoryReservationPolicy", string(c.MemoryReservationPolicy), string(kubelet.NoneMemoryReservationPolicy), string(TieredReservation))
	if p := c.CPUCFSQuotaPeriod.Duration; p < time.Millisecond || p > time.Second {
		f.add("cpuCFSQuotaPeriod", p.String(), "must be 1ms to 1s")
	}
	for i, name := range c.AllowedUnsafeSysctls {
		if strings.TrimSuffix(name, "*") == "" || strings.ContainsAny(strings.TrimSuffix(name, "*"), "* \t\n") {
			f.add(fmt.Sprintf("allowedUnsafeSysctls[%d]", i), name, "must be the name of a sysctl, or the beginning of names and *")
		}
	}
}

func (c *Config) checkProcessors(f *faults, online cpuset.CPUSet) {
	refuse := func(format string, args ...any) { f.add("reservedSystemCPUs", c.ReservedSystemCPUs, format, args...) }
	reserved, err := c.Reserved()
	switch {
	case err != nil:
		refuse("must be a list of processors such as 0-1,3")
	case online.IsEmpty(): // any machine
	case !reserved.IsSubsetOf(online):
		refuse("must be processors that are online: %s", online)
	case reserved.Size() >= min(online.Size(), runtime.NumCPU()): // the capacity of the node is what this process may use
		refuse("must leave a processor for pods: %s are online", online)
	}
	if c.ReservedSystemCPUs != "" && c.SystemReservedCgroup+c.KubeReservedCgroup != "" {
		refuse("must not be set with systemReservedCgroup or kubeReservedCgroup")
	}
}

// checkPolicy checks what the processors of containers depend on. Errors are upstream's.
func (c *Config) checkPolicy(f *faults) {
	f.oneOf("cpuManagerPolicy", c.CPUManagerPolicy, "none", StaticPolicy)
	f.duration("cpuManagerReconcilePeriod", c.CPUManagerReconcilePeriod.Duration, time.Second)
	const path = "cpuManagerPolicyOptions"
	static := c.CPUManagerPolicy == StaticPolicy
	if !static && len(c.CPUManagerPolicyOptions) > 0 {
		f.add(path, len(c.CPUManagerPolicyOptions), "None policy: received unsupported options=%v", c.CPUManagerPolicyOptions)
	}
	for _, name := range slices.Sorted(maps.Keys(c.CPUManagerPolicyOptions)) {
		value := c.CPUManagerPolicyOptions[name]
		switch name {
		case cpumanager.WholeCoresOption, cpumanager.StrictOption, "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache":
			if _, err := strconv.ParseBool(value); err != nil {
				f.add(path+"."+name, value, "bad value for option %q: %v", name, err)
			}
		case "align-by-socket", "distribute-cpus-across-cores":
			f.add(path+"."+name, value, "CPU Manager Policy Alpha-level Options not enabled, but option %q provided", name)
		default:
			f.add(path+"."+name, value, "unknown CPU Manager Policy option: %q", name)
		}
	}
	if static && c.CPUManager().Amount == 0 {
		f.add("cpuManagerPolicy", c.CPUManagerPolicy, "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
	}
}

func (c *Config) checkImages(f *faults) {
	f.atLeast("registryPullQPS", int64(*c.RegistryPullQPS), 0)
	f.atLeast("registryBurst", int64(c.RegistryBurst), 0)
	f.duration("imageMinimumGCAge", c.ImageMinimumGCAge.Duration, 0)
	f.duration("imageMaximumGCAge", c.ImageMaximumGCAge.Duration, 0)
	if most := c.ImageMaximumGCAge.Duration; most != 0 && most <= c.ImageMinimumGCAge.Duration {
		f.add("imageMaximumGCAge", most.String(), "must be 0s or > imageMinimumGCAge, which is %v", c.ImageMinimumGCAge.Duration)
	}
	high, low := int64(*c.ImageGCHighThresholdPercent), int64(*c.ImageGCLowThresholdPercent)
	f.between("imageGCHighThresholdPercent", high, 0, 100)
	f.between("imageGCLowThresholdPercent", low, 0, 100)
	if low >= high {
		f.add("imageGCLowThresholdPercent", low, "must be < imageGCHighThresholdPercent, which is %d", high)
	}
	if n := c.MaxParallelImagePulls; n != nil {
		f.atLeast("maxParallelImagePulls", int64(*n), 1)
		if *n > 1 && *c.SerializeImagePulls {
			f.add("maxParallelImagePulls", *n, "must be 1 if serializeImagePulls is true")
		}
	}
}

// checkReserved checks amounts that are not for pods.
func (c *Config) checkReserved(f *faults, name string, amounts map[string]string) {
	for _, of := range slices.Sorted(maps.Keys(amounts)) {
		path := name + "." + of
		f.oneOf(path, of, "cpu", "memory", "ephemeral-storage", "pid")
		if q, err := quantity.Parse(amounts[of]); err != nil || q.Sign() < 0 {
			f.add(path, amounts[of], "must be an amount >= 0, such as 100m or 200Mi")
		}
	}
}

// longestShutdown bounds how long the shutdown of the machine may be delayed, over all periods together.
const longestShutdown = 24 * time.Hour

func (c *Config) checkShutdown(f *faults) {
	all, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	for name, d := range map[string]time.Duration{"shutdownGracePeriod": all, "shutdownGracePeriodCriticalPods": critical} {
		if d != 0 && (d < time.Second || d > longestShutdown) {
			f.add(name, d.String(), "must be 0s, or 1s to %v", longestShutdown)
		}
	}
	if critical > all {
		f.add("shutdownGracePeriodCriticalPods", critical.String(), "must be <= shutdownGracePeriod, which is %v", all)
	}
	if len(c.ShutdownGracePeriodByPodPriority) > 0 && (all != 0 || critical != 0) {
		f.add("shutdownGracePeriodByPodPriority", len(c.ShutdownGracePeriodByPodPriority), "must be empty if shutdownGracePeriod or shutdownGracePeriodCriticalPods is set")
	}
	left := int64(longestShutdown / time.Second)
	for i, p := range c.ShutdownGracePeriodByPodPriority {
		f.between(fmt.Sprintf("shutdownGracePeriodByPodPriority[%d].shutdownGracePeriodSeconds", i), p.ShutdownGracePeriodSeconds, 0, left)
		left -= min(max(p.ShutdownGracePeriodSeconds, 0), left)
	}
}

// Signals of evictions.
var signals = []string{
	"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"containerfs.available", "containerfs.inodesFree", "pid.available", "allocatableMemory.available",
}

func (c *Config) checkEviction(f *faults) {
	for _, list := range []struct {
		name string
		all  map[string]string
	}{{"evictionHard", c.EvictionHard}, {"evictionSoft", c.EvictionSoft}, {"evictionMinimumReclaim", c.EvictionMinimumReclaim}} {
		for _, signal := range slices.Sorted(maps.Keys(list.all)) {
			path := list.name + "." + signal
			f.oneOf(path, signal, signals...)
			if _, err := parseAmount(list.all[signal]); err != nil {
				f.add(path, list.all[signal], "%v", err)
			}
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		if d, err := time.ParseDuration(c.EvictionSoftGracePeriod[signal]); err != nil || d < 0 {
			f.add("evictionSoftGracePeriod."+signal, c.EvictionSoftGracePeriod[signal], "must be a duration >= 0s for each signal of evictionSoft")
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoftGracePeriod)) {
		f.oneOf("evictionSoftGracePeriod."+signal, signal, signals...)
	}
	f.duration("evictionPressureTransitionPeriod", c.EvictionPressureTransitionPeriod.Duration, 0)
	f.atLeast("evictionMaxPodGracePeriod", int64(c.EvictionMaxPodGracePeriod), 0)
}

// An Amount is a value of an eviction signal: a quantity, or a share of the capacity.
type Amount struct {
	Quantity resource.Quantity
	Share    float64 // 0 to 1; 0 means that Quantity counts
}

// Of returns the amount of a capacity, in its unit (bytes, inodes, processes).
func (a Amount) Of(capacity int64) int64 {
	if a.Share > 0 {
		return int64(a.Share * float64(capacity))
	}
	return a.Quantity.Value()
}

// parseAmount reads an amount such as 100Mi or 10%.
func parseAmount(text string) (Amount, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		v, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(v >= 0 && v <= 100) {
			return Amount{}, fmt.Errorf("must be 0%% to 100%%")
		}
		return Amount{Share: v / 100}, nil
	}
	q, err := quantity.Parse(text)
	if err != nil || q.Sign() < 0 {
		return Amount{}, fmt.Errorf("must be an amount >= 0 such as 100Mi, or a share of the capacity such as 10%%")
	}
	return Amount{Quantity: q}, nil
}
