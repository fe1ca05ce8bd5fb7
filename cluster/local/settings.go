package local

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sampan-io/sampan/controller/balancer"
	"github.com/sampan-io/sampan/dns"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/unixsocket"
	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/simulation"
)

// Settings are the settings that a cluster is started with. Choices of the first start
// hold for the later ones.
type Settings struct {
	// APIPort is the port of the API server on 127.0.0.1; 0 means 6443 or, if
	// that is taken, any that is free.
	APIPort int `json:"apiPort,omitempty"`

	// LastPort is the one that the API server got at the first start, or by APIPort since. It is tried first when APIPort
	// is 0: there are clients that know it. A start that finds it in use takes another one, for that run.
	LastPort int `json:"lastPort,omitempty"`

	// Ancestors are the IDs of the clusters that this one was made from, by snapshots, the nearest first. No flag sets
	// them, and there are at most MaxAncestors.
	Ancestors []string `json:"ancestors,omitempty"`

	// AdvertiseAddress is the address of this host at which other machines reach the API server and the node, or one
	// of each IP family separated by a comma. Empty means that no other machine can join; NoAdvertiseAddress removes
	// a stored one.
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`

	// NodeMaskSize is the length of the prefix of each node's part of an IPv4 pod network. 0 means as many as the
	// maxPods of the kubelet configuration need, but 24 at most, when the cluster is made; it stays as it is then.
	NodeMaskSize int `json:"nodeMaskSize,omitempty"`

	// ProxyHealth and ProxyMetrics are where the service proxy of a real node serves its health and its metrics, as
	// IP:PORT; "" means kube-proxy's default, and NoAddress nowhere.
	ProxyHealth  string `json:"proxyHealth,omitempty"`
	ProxyMetrics string `json:"proxyMetrics,omitempty"`

	// SimulatedNodes is the number of nodes on which pods go through their life
	// without containers; 0 means one real node or, with SimulatedNodeFile, what the
	// file says.
	SimulatedNodes int `json:"simulatedNodes,omitempty"`

	// SimulatedNodeFile says what simulated nodes are and how pods live there, see
	// package simulation; empty means that all are equal. It is read at every start.
	SimulatedNodeFile string `json:"simulatedNodeFile,omitempty"`

	// NodeName is the name of the node, and what those of simulated ones begin
	// with; empty means the host's name.
	NodeName string `json:"nodeName,omitempty"`

	// Controllers are the enabled controllers; empty means all.
	Controllers Controllers `json:"controllers,omitempty"`

	// ClusterDomain is the name under which services have theirs; empty means
	// cluster.local.
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// DNSListen is the address at which the cluster's name server listens, or
	// [dns.None]. Empty means port 53 of the bridge, or another if that is taken; and
	// nowhere with simulated nodes.
	DNSListen string `json:"dnsListen,omitempty"`

	// DNSUpstream are the name servers that it asks for other names, with commas
	// between, or [dns.None]. Empty means those of the host.
	DNSUpstream string `json:"dnsUpstream,omitempty"`

	// SchedulerConfig is the absolute path of a KubeSchedulerConfiguration, read at each start. Empty
	// means the default; NoSchedulerConfig removes a stored path.
	SchedulerConfig string `json:"schedulerConfig,omitempty"`

	// RuntimeEndpoint is the address of the unix socket of a CRI server that others run; empty means Sampan's own
	// runtime, and NoRuntimeEndpoint removes a stored one.
	RuntimeEndpoint string `json:"containerRuntimeEndpoint,omitempty"`

	// CNIConfDir is a directory with the configuration of CNI plug-ins that connect the pods of Sampan's own runtime,
	// and CNIBinDir has their programs, in directories separated by commas; empty means [DefaultCNIBinDir]. Without a
	// CNIConfDir pods are on the bridge. NoCNI removes a stored one.
	CNIConfDir string `json:"cniConfDir,omitempty"`
	CNIBinDir  string `json:"cniBinDir,omitempty"`

	// KubeletConfig is the absolute path of a KubeletConfiguration, read at each start. Empty means the default;
	// NoKubeletConfig removes a stored path.
	KubeletConfig string `json:"kubeletConfig,omitempty"`

	// LoadBalancerAddresses are the addresses for Services of type LoadBalancer, in the
	// format of package balancer. Empty means none; NoLoadBalancerAddresses removes
	// stored ones.
	LoadBalancerAddresses string `json:"loadBalancerAddresses,omitempty"`

	// ProxyMode is how Services are proxied that do not say it themselves; empty means
	// by the kernel.
	ProxyMode ProxyMode `json:"proxyMode,omitempty"`

	// StaticPodPath is a directory with manifests of pods that the real node runs without the API server; "" means
	// none. NoStaticPodPath removes a stored path.
	StaticPodPath string `json:"staticPodPath,omitempty"`
	// EventTTL is how long Events are kept after their last write; 0 means an hour.
	EventTTL Duration `json:"eventTTL,omitempty"`

	// Server are the flags that the API server has in common with kube-apiserver.
	Server ServerFlags `json:"apiServer,omitempty"`

	// Authentication says which users there are beside those of the cluster itself.
	Authentication Authentication `json:"authentication,omitzero"`

	// Profiling is whether the API server serves /debug/pprof: "true" or [Off]; empty means true.
	Profiling string `json:"profiling,omitempty"`

	// RequestLog is which requests have a line in the log; empty means none.
	RequestLog RequestLog `json:"requestLog,omitempty"`

	// Images says where a real node gets images from.
	Images ImageSettings `json:"images,omitzero"`

	// Snapshots says when the cluster saves snapshots by itself.
	Snapshots SnapshotSettings `json:"snapshots,omitzero"`

	// Expiry says when the cluster ends by itself.
	Expiry Expiry `json:"expiry,omitzero"`

	// History says which superseded states of objects are kept.
	History HistorySettings `json:"history,omitzero"`

	// Fleet is the prefix of the names of the clusters that this one was first started with; "" if it was started alone.
	Fleet string `json:"fleet,omitempty"`

	// Networks of pods and services; a zero Pair means free ones.
	Networks

	// IPFamily is of which families the networks are that are free; empty means those of
	// the ones that are said, or else IPv4. Once networks are settled it is empty.
	IPFamily IPFamily `json:"-"`
}

// Off is the value of a setting that switches something off.
const Off = "false"

// A RequestLog is which requests have a line in the log: none, errors, writes or all.
type RequestLog string

// Effective returns the requests that are logged, empty for none.
func (l RequestLog) Effective() string {
	if l == "none" {
		return ""
	}
	return string(l)
}

// checkServing checks the API server's settings of serving and logging.
func (s Settings) checkServing() error {
	var errs []error
	switch s.RequestLog {
	case "", "none", "errors", "writes", "all":
	default:
		errs = append(errs, fmt.Errorf("--request-log: must be none, errors, writes or all, got %q", s.RequestLog))
	}
	switch s.Profiling {
	case "", "true", Off:
	default:
		errs = append(errs, fmt.Errorf("--profiling: must be true or false, got %q", s.Profiling))
	}
	return errors.Join(errs...)
}

// A ProxyMode is how a Service is proxied.
type ProxyMode string

// The modes of the service proxy.
const (
	KernelMode    ProxyMode = "kernel"    // by rules of the kernel
	UserspaceMode ProxyMode = "userspace" // by a relay that retries
)

func (m ProxyMode) check() error {
	switch m {
	case "", KernelMode, UserspaceMode:
		return nil
	}
	return fmt.Errorf("--proxy-mode: must be %[2]s or %[3]s, got %[1]q", string(m), KernelMode, UserspaceMode)
}

// DefaultEventTTL is the EventTTL that 0 means, as kube-apiserver has it.
const DefaultEventTTL = Duration(time.Hour)

// A Duration is written as text in JSON ("1h0m0s").
type Duration time.Duration

// String implements [fmt.Stringer].
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// NoAdvertiseAddress is the AdvertiseAddress that takes an earlier one back.
const NoAdvertiseAddress = "none"

// NoSchedulerConfig is the SchedulerConfig that takes an earlier one back.
const NoSchedulerConfig = "none"

// NoRuntimeEndpoint is the RuntimeEndpoint that takes an earlier one back.
const NoRuntimeEndpoint = "none"

// NoCNI is the CNIConfDir that takes an earlier one back, and DefaultCNIBinDir is where network add-ons put their
// programs.
const (
	NoCNI            = "none"
	DefaultCNIBinDir = "/opt/cni/bin"
)

// NoStaticPodPath is the StaticPodPath that takes an earlier one back.
const NoStaticPodPath = "none"

// NoKubeletConfig is the KubeletConfig that takes an earlier one back.
const NoKubeletConfig = "none"

// NoLoadBalancerAddresses are the LoadBalancerAddresses that take earlier ones back.
const NoLoadBalancerAddresses = "none"

// MaxSimulatedNodes bounds how many nodes one process simulates.
const MaxSimulatedNodes = 5000

// Simulated reports whether the nodes are.
func (s Settings) Simulated() bool { return s.SimulatedNodes > 0 || s.SimulatedNodeFile != "" }

// Plan returns the simulated nodes. NodeName must be settled.
func (s Settings) Plan() (*simulation.Plan, error) {
	if s.SimulatedNodeFile != "" {
		return simulation.Read(s.SimulatedNodeFile, s.SimulatedNodes, MaxSimulatedNodes)
	}
	return simulation.Uniform(s.NodeName, s.SimulatedNodes), nil
}

// Pool returns the addresses of load balancers.
func (s Settings) Pool() (balancer.Pool, error) {
	if s.LoadBalancerAddresses == NoLoadBalancerAddresses {
		return balancer.Pool{}, nil
	}
	p, err := balancer.ParsePool(s.LoadBalancerAddresses)
	if err != nil {
		err = fmt.Errorf("--load-balancer-addresses: %w", err)
	}
	return p, err
}

// room returns an error if the settled networks leave no room: for the addresses of load
// balancers, or for simulated nodes that are not as they can be.
func (s Settings) room() error {
	pool, err := s.Pool()
	if err != nil {
		return err
	}
	for _, f := range s.flags() {
		for _, n := range f.All() {
			if pool.Overlaps(n) {
				return fmt.Errorf("--load-balancer-addresses %s: overlaps the %s network %s", s.LoadBalancerAddresses, f.of, n)
			}
		}
	}
	if !s.Simulated() {
		return s.nodeRoom()
	}
	plan, err := s.Plan()
	if err != nil {
		return err
	}
	return plan.Room(s.Pods.All()...)
}

func (p Profile) settingsFile() string { return filepath.Join(p.DataDir, "cluster.json") }

// Settle returns the settings of the cluster's start: those chosen before,
// or else those asked for, or else the defaults. To ask for something other
// than those of the data is an error that names it. Claims, if not nil,
// keep the networks that were chosen for a real node.
func (p Profile) Settle(asked Settings, claims *Claims) (Settings, error) {
	if err := asked.check(); err != nil {
		return Settings{}, err
	}
	saved, found, err := p.savedSettings()
	if err != nil {
		return Settings{}, err
	}
	if found {
		s, err := saved.with(asked, p)
		if err == nil {
			err = errors.Join(s.room(), s.checkPool(), s.Authentication.check(), s.Images.check())
		}
		return s, err
	}
	asked.Server = ServerFlags("").with(asked.Server)
	asked.Authentication = Authentication{}.with(asked.Authentication)
	asked, err = asked.First()
	if err := errors.Join(asked.Authentication.check(), err); err != nil {
		return Settings{}, err
	}
	asked.AdvertiseAddress = kept("", asked.AdvertiseAddress, NoAdvertiseAddress)
	asked.SchedulerConfig = kept("", asked.SchedulerConfig, NoSchedulerConfig)
	asked.Snapshots = SnapshotSettings{}.with(asked.Snapshots)
	asked.Expiry = Expiry{}.with(asked.Expiry, time.Now())
	asked.History = HistorySettings{}.with(asked.History)
	if asked.LoadBalancerAddresses == NoLoadBalancerAddresses {
		asked.LoadBalancerAddresses = ""
	}
	if asked.NodeMaskSize == 0 && !asked.Simulated() && asked.KubeletConfig != "" {
		config, err := kubeletconfig.Load(asked.KubeletConfig)
		if err != nil {
			return Settings{}, fmt.Errorf("--kubelet-config: %w", err)
		}
		asked.NodeMaskSize = defaultMask(int(config.MaxPods))
	}
	if asked.NodeName == "" {
		if asked.NodeName, err = hostName(); err != nil {
			return Settings{}, err
		}
	}
	if !asked.Simulated() && asked.RuntimeEndpoint == "" && (asked.Pods.IsValid() || asked.Services.IsValid()) { // their networks are imagined
		if err := asked.checkHost(p.Bridge()); err != nil {
			return Settings{}, err
		}
	}
	if !asked.Pods.IsValid() || !asked.Services.IsValid() {
		taken, err := HostRoutes(p.Bridge(), asked.wanted())
		if err != nil {
			return Settings{}, err
		}
		taken = slices.Concat(taken, asked.Pods.All(), asked.Services.All())
		var fits func(netip.Prefix) bool
		if asked.Simulated() {
			claims = nil // their networks are imagined: all may have the same
			plan, err := asked.Plan()
			if err != nil {
				return Settings{}, err
			}
			fits = func(n netip.Prefix) bool { return plan.Room(n) == nil }
		}
		free, err := FreeNetworks(asked.wanted(), taken, fits, claims)
		if err != nil {
			return Settings{}, err
		}
		if !asked.Pods.IsValid() {
			asked.Pods = free.Pods
		}
		if !asked.Services.IsValid() {
			asked.Services = free.Services
		}
	}
	asked.IPFamily = ""
	return asked, errors.Join(asked.room(), asked.checkPool())
}

// Keep saves the settings, unless they are saved already.
func (p Profile) Keep(s Settings) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if saved, err := os.ReadFile(p.settingsFile()); err == nil && bytes.Equal(saved, data) {
		return nil
	}
	if err := replace(p.settingsFile(), data); err != nil {
		return fmt.Errorf("saving the settings of the cluster: %w", err)
	}
	return nil
}

// replace replaces a file with mode 0600, durably. An empty directory in its place is removed.
func replace(file string, data []byte) error {
	if info, err := os.Lstat(file); err == nil && info.IsDir() {
		_ = os.Remove(file) // if it is not empty, the next line fails
	}
	return wholefile.Write(file, data, 0o600, wholefile.Durable)
}

// NoSpace reports whether an error says that there is no space on a file system.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func (p Profile) savedSettings() (Settings, bool, error) {
	var s Settings
	if _, err := os.Lstat(p.settingsFile()); errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	err := read(p.settingsFile(), &s)
	if _, ok := errors.AsType[*damageError](err); ok {
		err = fmt.Errorf("%w; restore the file from a copy; or `sampan down --purge%s --data-dir=%s` removes the cluster with all its data", err, p.NameFlag(), p.DataDir)
	}
	if err != nil {
		return Settings{}, false, fmt.Errorf("reading the settings of the cluster: %w", err)
	}
	return s, true, nil
}

// with returns saved settings with those asked for this time.
func (s Settings) with(asked Settings, p Profile) (Settings, error) {
	refuse := func(what string, is, wanted any) error {
		return fmt.Errorf("%s of the cluster in %s is %v and cannot be changed to %v; remove the cluster and its data with `sampan down --purge --name=%s`, or create another one with --name", what, p.DataDir, is, wanted, p.Name)
	}
	switch {
	case asked.Simulated() && !s.Simulated():
		return s, refuse("the kind of node", "real", "simulated")
	case asked.NodeName != "" && asked.NodeName != s.NodeName:
		return s, refuse("--node-name", s.NodeName, asked.NodeName)
	case asked.ClusterDomain != "" && asked.domain() != s.domain():
		return s, refuse("--cluster-domain", s.domain(), asked.domain())
	case asked.IPFamily != "" && asked.IPFamily != s.Pods.Family():
		return s, refuse("--ip-family", s.Pods.Family(), asked.IPFamily)
	case asked.Pods.IsValid() && asked.Pods != s.Pods:
		return s, refuse("--pod-network", s.Pods, asked.Pods)
	case asked.NodeMaskSize != 0 && asked.NodeMaskSize != s.NodeBits(netip.PrefixFrom(netip.IPv4Unspecified(), 0)):
		return s, refuse("--node-cidr-mask-size", s.NodeBits(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), asked.NodeMaskSize)
	case asked.Services.IsValid() && asked.Services != s.Services:
		return s, refuse("--service-network", s.Services, asked.Services)
	}
	if asked.SimulatedNodeFile != "" {
		s.SimulatedNodeFile, s.SimulatedNodes = asked.SimulatedNodeFile, 0
	}
	if asked.SimulatedNodes > 0 {
		s.SimulatedNodes = asked.SimulatedNodes
	}
	if asked.APIPort != 0 {
		s.APIPort = asked.APIPort
	}
	if asked.Controllers != "" {
		s.Controllers = asked.Controllers
	}
	s.DNSListen, s.DNSUpstream = cmp.Or(asked.DNSListen, s.DNSListen), cmp.Or(asked.DNSUpstream, s.DNSUpstream)
	s.ProxyMode = cmp.Or(asked.ProxyMode, s.ProxyMode)
	s.ProxyHealth, s.ProxyMetrics = cmp.Or(asked.ProxyHealth, s.ProxyHealth), cmp.Or(asked.ProxyMetrics, s.ProxyMetrics)
	s.EventTTL = cmp.Or(asked.EventTTL, s.EventTTL)
	s.StaticPodPath = kept(s.StaticPodPath, asked.StaticPodPath, NoStaticPodPath)
	s.Server = s.Server.with(asked.Server)
	s.Authentication = s.Authentication.with(asked.Authentication)
	s.Images = s.Images.with(asked.Images)
	s.Snapshots = s.Snapshots.with(asked.Snapshots)
	s.Expiry = s.Expiry.with(asked.Expiry, time.Now())
	s.History = s.History.with(asked.History)
	s.Profiling, s.RequestLog = cmp.Or(asked.Profiling, s.Profiling), cmp.Or(asked.RequestLog, s.RequestLog)
	s.AdvertiseAddress = kept(s.AdvertiseAddress, asked.AdvertiseAddress, NoAdvertiseAddress)
	s.SchedulerConfig = kept(s.SchedulerConfig, asked.SchedulerConfig, NoSchedulerConfig)
	s.RuntimeEndpoint = kept(s.RuntimeEndpoint, asked.RuntimeEndpoint, NoRuntimeEndpoint)
	s.CNIConfDir, s.CNIBinDir = kept(s.CNIConfDir, asked.CNIConfDir, NoCNI), cmp.Or(asked.CNIBinDir, s.CNIBinDir)
	s.KubeletConfig = kept(s.KubeletConfig, asked.KubeletConfig, NoKubeletConfig)
	switch asked.LoadBalancerAddresses {
	case "":
	case NoLoadBalancerAddresses:
		s.LoadBalancerAddresses = ""
	default:
		s.LoadBalancerAddresses = asked.LoadBalancerAddresses
	}
	return s, nil
}

// First returns the settings of a node that has none yet, where a value that takes back a stored one means the
// default. The error is that of [ImageSettings.Settled].
func (s Settings) First() (_ Settings, err error) {
	s.RuntimeEndpoint = kept("", s.RuntimeEndpoint, NoRuntimeEndpoint)
	s.CNIConfDir = kept("", s.CNIConfDir, NoCNI)
	s.KubeletConfig = kept("", s.KubeletConfig, NoKubeletConfig)
	s.StaticPodPath = kept("", s.StaticPodPath, NoStaticPodPath)
	s.Images, err = s.Images.Settled()
	return s, err
}

// kept returns the value of a setting: the one that is asked for, if any; none takes the stored one back.
func kept(stored, asked, none string) string {
	switch asked {
	case "":
		return stored
	case none:
		return ""
	}
	return asked
}

// domain returns the cluster domain, without a dot at its end.
func (s Settings) domain() string {
	return strings.TrimSuffix(cmp.Or(s.ClusterDomain, zone.DefaultDomain), ".")
}

// Differ says how what is asked for differs from what a cluster runs with, or
// nil.
func (p Profile) Differ(asked Settings) error {
	now, found, err := p.savedSettings()
	if err != nil || !found {
		return err
	}
	wanted, err := p.Settle(asked, nil)
	if err != nil {
		return err
	}
	refuse := func(what string, is, wanted any) error {
		return fmt.Errorf("cluster %s is already running with %s=%v, not %v; stop it with `sampan down --name=%s`, then `sampan up --name=%[1]s` with this flag applies the new value", p.Name, what, is, wanted, p.Name)
	}
	if f, is, want, found := now.Server.differ(wanted.Server); found {
		return refuse("--"+f.Name, is, want)
	}
	switch {
	case wanted.APIPort != now.APIPort && wanted.APIPort != now.LastPort:
		return refuse("--api-port", cmp.Or(now.LastPort, now.APIPort), wanted.APIPort)
	case wanted.AdvertiseAddress != now.AdvertiseAddress:
		return refuse("--advertise-address", cmp.Or(now.AdvertiseAddress, NoAdvertiseAddress), cmp.Or(wanted.AdvertiseAddress, NoAdvertiseAddress))
	case wanted.SimulatedNodeFile != now.SimulatedNodeFile:
		return refuse("--simulated-node-file", now.SimulatedNodeFile, wanted.SimulatedNodeFile)
	case wanted.SimulatedNodes != now.SimulatedNodes:
		return refuse("--simulated-nodes", now.SimulatedNodes, wanted.SimulatedNodes)
	case wanted.SchedulerConfig != now.SchedulerConfig:
		return refuse("--scheduler-config", cmp.Or(now.SchedulerConfig, NoSchedulerConfig), cmp.Or(wanted.SchedulerConfig, NoSchedulerConfig))
	case wanted.RuntimeEndpoint != now.RuntimeEndpoint:
		return refuse("--container-runtime-endpoint", cmp.Or(now.RuntimeEndpoint, NoRuntimeEndpoint), cmp.Or(wanted.RuntimeEndpoint, NoRuntimeEndpoint))
	case wanted.CNIConfDir != now.CNIConfDir:
		return refuse("--cni-conf-dir", cmp.Or(now.CNIConfDir, NoCNI), cmp.Or(wanted.CNIConfDir, NoCNI))
	case wanted.CNIBinDir != now.CNIBinDir:
		return refuse("--cni-bin-dir", cmp.Or(now.CNIBinDir, DefaultCNIBinDir), cmp.Or(wanted.CNIBinDir, DefaultCNIBinDir))
	case wanted.KubeletConfig != now.KubeletConfig:
		return refuse("--kubelet-config", cmp.Or(now.KubeletConfig, NoKubeletConfig), cmp.Or(wanted.KubeletConfig, NoKubeletConfig))
	case wanted.LoadBalancerAddresses != now.LoadBalancerAddresses:
		return refuse("--load-balancer-addresses", cmp.Or(now.LoadBalancerAddresses, NoLoadBalancerAddresses), cmp.Or(wanted.LoadBalancerAddresses, NoLoadBalancerAddresses))
	case wanted.Controllers != now.Controllers:
		return refuse("--controllers", cmp.Or(now.Controllers, "*"), wanted.Controllers)
	case cmp.Or(wanted.ProxyMode, KernelMode) != cmp.Or(now.ProxyMode, KernelMode):
		return refuse("--proxy-mode", cmp.Or(now.ProxyMode, KernelMode), cmp.Or(wanted.ProxyMode, KernelMode))
	case wanted.ProxyHealth != now.ProxyHealth:
		return refuse("--healthz-bind-address", cmp.Or(now.ProxyHealth, DefaultProxyHealth), wanted.ProxyHealth)
	case wanted.ProxyMetrics != now.ProxyMetrics:
		return refuse("--metrics-bind-address", cmp.Or(now.ProxyMetrics, DefaultProxyMetrics), wanted.ProxyMetrics)
	case cmp.Or(wanted.Profiling, "true") != cmp.Or(now.Profiling, "true"):
		return refuse("--profiling", cmp.Or(now.Profiling, "true"), wanted.Profiling)
	case wanted.RequestLog.Effective() != now.RequestLog.Effective():
		return refuse("--request-log", cmp.Or(now.RequestLog, "none"), wanted.RequestLog)
	case wanted.StaticPodPath != now.StaticPodPath:
		return refuse("--static-pod-path", cmp.Or(now.StaticPodPath, NoStaticPodPath), cmp.Or(wanted.StaticPodPath, NoStaticPodPath))
	case wanted.EventTTL != now.EventTTL:
		return refuse("--event-ttl", cmp.Or(now.EventTTL, DefaultEventTTL), wanted.EventTTL)
	case wanted.Images.Registries != now.Images.Registries:
		return refuse("--registries", cmp.Or(now.Images.Registries, NoImageSetting), cmp.Or(wanted.Images.Registries, NoImageSetting))
	case wanted.Images.CredentialConfig != now.Images.CredentialConfig:
		return refuse("--image-credential-provider-config", cmp.Or(now.Images.CredentialConfig, NoImageSetting), cmp.Or(wanted.Images.CredentialConfig, NoImageSetting))
	case wanted.Images.CredentialPrograms != now.Images.CredentialPrograms:
		return refuse("--image-credential-provider-bin-dir", cmp.Or(now.Images.CredentialPrograms, NoImageSetting), cmp.Or(wanted.Images.CredentialPrograms, NoImageSetting))
	case wanted.Snapshots.Every != now.Snapshots.Every:
		return refuse("--snapshot-every", cmp.Or(now.Snapshots.Every, NoSnapshots), cmp.Or(wanted.Snapshots.Every, NoSnapshots))
	case wanted.Snapshots.Count() != now.Snapshots.Count():
		return refuse("--snapshot-keep", now.Snapshots.Count(), wanted.Snapshots.Count())
	case wanted.Expiry.After != now.Expiry.After:
		return refuse("--expires", cmp.Or(now.Expiry.After, NoExpiry), cmp.Or(wanted.Expiry.After, NoExpiry))
	case wanted.Snapshots.Dir != now.Snapshots.Dir:
		return refuse("--snapshot-dir", cmp.Or(now.Snapshots.Dir, NoSnapshots), cmp.Or(wanted.Snapshots.Dir, NoSnapshots))
	case wanted.History.Window() != now.History.Window():
		return refuse("--history", cmp.Or(now.History.Keep, NoHistory), cmp.Or(wanted.History.Keep, NoHistory))
	case wanted.History.Bytes() != now.History.Bytes():
		return refuse("--history-max", cmp.Or(now.History.Max, DefaultHistoryMax), cmp.Or(wanted.History.Max, DefaultHistoryMax))
	case !reflect.DeepEqual(wanted.Authentication, now.Authentication):
		return fmt.Errorf("cluster %s is already running with other settings for authentication; stop it with `sampan down --name=%s`, then `sampan up` applies the new ones", p.Name, p.Name)
	case wanted.DNSListen != now.DNSListen:
		return refuse("--cluster-dns-listen", cmp.Or(now.DNSListen, "its default"), wanted.DNSListen)
	case wanted.DNSUpstream != now.DNSUpstream:
		return refuse("--cluster-dns-upstream", cmp.Or(now.DNSUpstream, "its default"), wanted.DNSUpstream)
	}
	return nil
}

// Check returns an error for each setting that has a value that it can't have.
func (s Settings) Check() error { return s.check() }

func (s Settings) check() error {
	var errs []error
	if s.APIPort < 0 || s.APIPort > 65535 {
		errs = append(errs, fmt.Errorf("--api-port: must be 1 to 65535, got %d", s.APIPort))
	}
	if s.NodeMaskSize != 0 && (s.NodeMaskSize < 8 || s.NodeMaskSize > 29) {
		errs = append(errs, fmt.Errorf("--node-cidr-mask-size: must be 8 to 29, got %d", s.NodeMaskSize))
	}
	errs = append(errs, bindable("healthz-bind-address", s.ProxyHealth), bindable("metrics-bind-address", s.ProxyMetrics))
	if s.SimulatedNodes < 0 || s.SimulatedNodes > MaxSimulatedNodes {
		errs = append(errs, fmt.Errorf("--simulated-nodes: must be 1 to %[2]d, got %[1]d", s.SimulatedNodes, MaxSimulatedNodes))
	}
	if s.NodeName != "" {
		for _, e := range validation.IsDNS1123Subdomain(s.NodeName) {
			errs = append(errs, fmt.Errorf("--node-name %q: %s", s.NodeName, e))
		}
	}
	if e := s.RuntimeEndpoint; e != "" && e != NoRuntimeEndpoint {
		if _, err := unixsocket.Path(e); err != nil {
			errs = append(errs, fmt.Errorf("--container-runtime-endpoint: %w", err))
		}
		if s.Simulated() {
			errs = append(errs, errors.New("--container-runtime-endpoint: must not be set for simulated nodes, which run no containers"))
		}
	}
	errs = append(errs, s.checkCNI(), s.checkAdvertise())
	if err := s.Controllers.check(); err != nil {
		errs = append(errs, err)
	}
	if s.StaticPodPath != "" && s.StaticPodPath != NoStaticPodPath && !filepath.IsAbs(s.StaticPodPath) {
		errs = append(errs, fmt.Errorf("--static-pod-path: must be an absolute path, got %q", s.StaticPodPath))
	}
	if s.EventTTL != 0 && s.EventTTL < Duration(time.Second) {
		errs = append(errs, fmt.Errorf("--event-ttl: must be >= 1s, got %v", s.EventTTL))
	}
	errs = append(errs, s.checkDNS(), s.Snapshots.check(), s.Expiry.check(), s.History.check(), s.ProxyMode.check(), s.Server.check(), s.checkServing())
	if _, err := s.Pool(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.checkNetworks())...)
}

func (s Settings) checkDNS() error {
	var errs []error
	if s.ClusterDomain != "" {
		if err := zone.CheckDomain(s.ClusterDomain); err != nil {
			errs = append(errs, fmt.Errorf("--cluster-domain: %w", err))
		}
	}
	if s.DNSListen != "" && s.DNSListen != dns.None {
		if _, err := dns.ParseAddress(s.DNSListen); err != nil {
			errs = append(errs, fmt.Errorf("--cluster-dns-listen: %w, or none", err))
		}
	}
	if _, err := dns.Upstream(s.DNSUpstream); err != nil {
		errs = append(errs, fmt.Errorf("--cluster-dns-upstream: %w, or none", err))
	}
	return errors.Join(errs...)
}

func hostName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("getting the name of this host: %w; pass one with --node-name", err)
	}
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "node", nil // a host may have a name that a node can't
	}
	return name, nil
}

// Holds reports whether the data directory is there and holds a cluster. One
// that is there and holds something else is a [*ForeignError].
func (p Profile) Holds() (bool, error) {
	entries, err := os.ReadDir(p.DataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the data directory: %w", err)
	}
	// A first start that failed may have got no further than the log, or the lock
	// of the store.
	ours := []string{p.settingsFile(), p.memberFile(), p.Log(), filepath.Join(p.DataDir, "store", "lock")}
	for _, name := range ours {
		if _, err := os.Lstat(name); err == nil {
			return true, nil
		}
	}
	for _, e := range entries {
		if e.Name() != "lost+found" { // every new ext file system has that
			return false, &ForeignError{Dir: p.DataDir}
		}
	}
	return false, nil
}

// A ForeignError is about a directory that is in use, but not for the data of a cluster.
// Nothing may be put there, because [Profile.Remove] removes all of it.
type ForeignError struct{ Dir string }

func (e *ForeignError) Error() string {
	return e.Dir + " does not look like the data of a cluster (no cluster.json in it)"
}

// checkCNI checks the directories of CNI.
func (s Settings) checkCNI() error {
	if s.CNIConfDir == "" || s.CNIConfDir == NoCNI {
		return nil
	}
	if !filepath.IsAbs(s.CNIConfDir) {
		return fmt.Errorf("--cni-conf-dir: must be an absolute path, got %q", s.CNIConfDir)
	}
	for dir := range strings.SplitSeq(cmp.Or(s.CNIBinDir, DefaultCNIBinDir), ",") {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("--cni-bin-dir: must be absolute paths, separated by commas, got %q", s.CNIBinDir)
		}
	}
	if s.Simulated() {
		return errors.New("--cni-conf-dir: must not be set for simulated nodes, which have no network")
	}
	if s.RuntimeEndpoint != "" && s.RuntimeEndpoint != NoRuntimeEndpoint {
		return errors.New("--cni-conf-dir: must not be set with --container-runtime-endpoint: that runtime has its own setting")
	}
	return nil
}

// HasCNI reports whether a directory has a configuration of CNI plug-ins.
func HasCNI(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name()))
	})
}
