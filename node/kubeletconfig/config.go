package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/document"
	"github.com/sampan-io/sampan/node/cpumanager"
)

// Group, version and kind of the file.
const (
	apiVersion = "kubelet.config.k8s.io/v1beta1"
	kind       = "KubeletConfiguration"
)

// A Config is the configuration of a node agent. It must not be changed after it was passed to one.
type Config struct {
	kubelet.KubeletConfiguration

	// Warnings are sentences about fields of the file that have no effect on this agent, in the order of the fields.
	Warnings []string

	fields       map[string]bool   // in the file
	evictionHard map[string]string // of the file
}

// Default returns the configuration without a file.
func Default() *Config {
	c := &Config{}
	c.setDefaults()
	return c
}

// Load reads a file for the machine that this process runs on: it may only reserve processors that the machine has.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	online, err := cpumanager.Online(cpumanager.Directory)
	if err != nil {
		return nil, err
	}
	return parse(path, text, online)
}

// Parse reads the text of a file for any machine. Errors call the file source.
func Parse(source string, text []byte) (*Config, error) {
	return parse(source, text, cpuset.CPUSet{})
}

// parse reads the text of a file for a machine with these processors; none means any machine.
func parse(source string, text []byte, online cpuset.CPUSet) (*Config, error) {
	d, err := document.Parse(source, text)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	faults, err := d.DecodeKnown(&c.KubeletConfiguration)
	if err != nil {
		return nil, err
	}
	if c.APIVersion != apiVersion || c.Kind != kind {
		return nil, fmt.Errorf("%s: apiVersion and kind are %q and %q; must be %q and %q", source, c.APIVersion, c.Kind, apiVersion, kind)
	}
	if err := c.present(text); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	c.setDefaults()
	if faults = append(faults, c.validate(online)...); len(faults) > 0 {
		return nil, d.Faults(faults)
	}
	c.warn()
	return c, nil
}

// Has reports whether the file has a top-level field, by its name in JSON.
func (c *Config) Has(name string) bool { return c.fields[name] }

// present records which fields the file has.
func (c *Config) present(text []byte) error {
	var all map[string]any
	err := yaml.Unmarshal(text, &all)
	c.fields = make(map[string]bool, len(all))
	for name := range all {
		c.fields[name] = true
	}
	return err
}

// warn fills in Warnings: fields of the file that have no effect, and other values than their defaults.
func (c *Config) warn() {
	defaults, mine := asMap(&Default().KubeletConfiguration), asMap(&c.KubeletConfiguration)
	effective := Effective()
	for _, name := range slices.Sorted(maps.Keys(c.fields)) {
		if name == "apiVersion" || name == "kind" || slices.Contains(effective, name) || reflect.DeepEqual(defaults[name], mine[name]) {
			continue
		}
		c.Warnings = append(c.Warnings, fmt.Sprintf("the field %s has no effect on this node", name))
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoftGracePeriod)) {
		if _, is := c.EvictionSoft[signal]; !is {
			c.Warnings = append(c.Warnings, fmt.Sprintf("the value %s of evictionSoftGracePeriod has no effect without one in evictionSoft", signal))
		}
	}
	for _, option := range slices.Sorted(maps.Keys(c.CPUManagerPolicyOptions)) {
		if option != cpumanager.WholeCoresOption && option != cpumanager.StrictOption {
			c.Warnings = append(c.Warnings, fmt.Sprintf("the option %s of cpuManagerPolicyOptions has no effect on this node", option))
		}
	}
	for _, value := range c.EnforceNodeAllocatable {
		if value != enforcePods && value != enforceNothing {
			c.Warnings = append(c.Warnings, fmt.Sprintf("the value %s of enforceNodeAllocatable has no effect on this node", value))
		}
	}
}

func asMap(k *kubelet.KubeletConfiguration) map[string]any {
	data, err := json.Marshal(k)
	all := map[string]any{}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil // the type always encodes
	}
	return all
}

// Effective returns the names of the fields that the agent acts on, sorted. A field of another name is accepted with
// its default value, and with another one it causes a warning.
func Effective() []string {
	all := strings.Fields(`
		allowedUnsafeSysctls clusterDNS clusterDomain containerLogMaxFiles containerLogMaxSize cgroupDriver containerLogMonitorInterval crashLoopBackOff cpuCFSQuota cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod
		enableDebuggingHandlers enableProfilingHandler enableSystemLogHandler evictionHard evictionMaxPodGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod mergeDefaultEvictionSettings
		enforceNodeAllocatable evictionSoft evictionSoftGracePeriod failSwapOn memoryReservationPolicy memorySwap memoryThrottlingFactor podLogsDir podPidsLimit healthzBindAddress healthzPort imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge
		imagePullCredentialsVerificationPolicy kubeReserved maxParallelImagePulls maxPods preloadedImagesVerificationAllowlist
		seccompDefault serializeImagePulls singleProcessOOMKill staticPodPath
		nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj podsPerCore
		providerID registerWithTaints reservedSystemCPUs resolvConf shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods systemReserved volumeStatsAggPeriod
	`)
	slices.Sort(all)
	return all
}
