package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/internal/nodefeature"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/capacity"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/deviceplugin"
	"github.com/sampan-io/sampan/node/dra"
	"github.com/sampan-io/sampan/node/eviction"
	"github.com/sampan-io/sampan/node/images"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/pluginregistry"
	"github.com/sampan-io/sampan/node/podcgroup"
	"github.com/sampan-io/sampan/node/pressure"
	"github.com/sampan-io/sampan/node/probe"
	"github.com/sampan-io/sampan/node/references"
	"github.com/sampan-io/sampan/node/registration"
	"github.com/sampan-io/sampan/node/server"
	"github.com/sampan-io/sampan/node/shutdown"
	"github.com/sampan-io/sampan/node/volumes"
	"github.com/sampan-io/sampan/runtime/api"
)

// Options configures a [Node]. Client, Name and Runtime are required.
type Options struct {
	Client  client.Interface // as the node: system:node:NAME
	Name    string           // of the Node object
	Runtime criclient.Runtime

	// Listeners and TLS serve the kubelet API (logs, pods); the Node object has the port of the
	// first listener. Without listeners it is not served. TLS needs a certificate; client
	// certificates are requested whatever TLS.ClientAuth is.
	Listeners []net.Listener
	TLS       *tls.Config
	// Local is the listener for the API server if that is in the same process: its connections have that server's permissions.
	// Nil means that there is none. It needs Listeners.
	Local *inprocess.Listener
	// ClientCAs returns the authorities whose client certificates are trusted.
	ClientCAs func() *x509.CertPool
	// Handlers are further parts of the kubelet API, by patterns of [http.ServeMux]
	// ("GET /path"): for the same clients as all of it.
	Handlers map[string]http.Handler
	// Metrics are those of other parts of the process, which /metrics of the kubelet API has as well.
	Metrics []prometheus.Collector

	Addresses []corev1.NodeAddress // each InternalIP is one of the pods' hostIPs
	PodCIDRs  []string             // networks of the pods, for the Node object; may be empty
	Labels    map[string]string    // in addition to the labels that every node has
	Taints    []corev1.Taint       // set when the Node object is created

	// RootDir is where volumes are kept, and has to be the same after a restart.
	// Empty means that the runtime has no use for files: what pods refer to must
	// exist all the same, but nothing is written.
	RootDir string
	// LocalVolume returns the path on this machine of a PersistentVolume of the type local, which it leaves as it is. Nil means that of
	// its spec. It is called for each mount.
	LocalVolume func(*corev1.PersistentVolume) string
	// LogDir is where the runtime writes the containers' output; empty means
	// nowhere.
	LogDir string
	// LogLinks is a directory with a link to the log of each container, by names that log collectors know; empty means
	// that there is none.
	LogLinks string
	// CgroupRoot is the name of the runtime's cgroup, under which each pod gets its own, as package podcgroup
	// has it; empty leaves that to the runtime.
	CgroupRoot string

	// DevicePluginDir is where device plug-ins have their sockets, kubelet.sock among them; empty means that there are
	// none. It needs RootDir.
	DevicePluginDir string
	// KubeletPluginDir is where plug-ins look for kubelet.sock that know no other directory; empty means nowhere.
	KubeletPluginDir string

	// CSI lets drivers of volumes (CSI) and of devices (DRA) register, by sockets in RootDir/plugins_registry. Pods find
	// RootDir at /var/lib/kubelet. It needs RootDir.
	CSI bool

	// Seccomp is what containers without a seccomp profile get, and where the profiles of type Localhost are.
	Seccomp crispec.Seccomp
	// AllowedUnsafeSysctls are the kernel parameters that pods may set in addition to the safe ones. A name may end in "*".
	AllowedUnsafeSysctls []string

	// Trouble is called with each error of the API server that keeps the node from being ready for the first time, such as
	// the refusal of an admission webhook. It must not block. Nil means no call.
	Trouble func(error)

	ClusterDNS    []string // servers; empty means that there is no cluster DNS
	ClusterDomain string   // "" means "cluster.local"
	ResolvConf    string   // "" means the host's

	// OwnPorts are the ports on which the cluster's own servers listen on this host. A pod with such a hostPort is rejected,
	// whatever its hostIP: it would get the connections of the cluster's clients.
	OwnPorts reserved.Ports

	Images images.Options

	MaxPods  int                 // 0 means 110
	Capacity corev1.ResourceList // overrides what the machine has
	Version  string              // kubelet version to report; "" means "v1.37.0"

	// StaticPodPath is a directory with a manifest for each static pod; "" means that there are none. ReadPod decodes a
	// manifest, has complete make the pod one of the node, sets the defaults of the API and checks the pod by its rules.
	// Ignored is what it does not use of the file, or is empty. Both that and errors name the file.
	StaticPodPath string
	ReadPod       func(file string, data []byte, complete func(*corev1.Pod) error) (pod *corev1.Pod, ignored string, err error)

	// Eviction are the thresholds below which the node evicts pods; nil means those of Config. A node without RootDir
	// evicts none.
	Eviction []eviction.Threshold

	// Starts is how many pods may be starting at once; 0 means 10.
	Starts int
	// DrainLimit is how long, at most, a ready pod behind a service keeps running after its
	// deletion before its first signal, until the proxies report that they send it no
	// requests; 0 means 5 s. It is never more than half of the grace period.
	DrainLimit time.Duration
	// DrainPause replaces DrainLimit if no report can come: no proxy reports, or there is no
	// other pod. 0 means 200 ms. Less than 0 means that pods get their first signal at once,
	// whatever proxies report.
	DrainPause time.Duration

	// Owner is the name of the cluster in a container runtime that is not Sampan's and that others may use as well. The
	// agent labels its pods with it and touches no others; it rotates logs, which Sampan's runtime does itself, and
	// checks the state of the runtime from time to time. Empty means that the runtime is this node's alone.
	Owner string
	// SystemBus is the D-Bus address at which systemd-logind is found, by which shutdowns of the machine wait for pods if Config
	// has periods for that. Empty means that they do not. It needs RootDir.
	SystemBus string
	// Config is the configuration file of the node; nil means [kubeletconfig.Default], except that all of the node's
	// capacity is for pods. MaxPods, ClusterDNS, ClusterDomain, ResolvConf and Taints, if set, take precedence.
	Config   *kubeletconfig.Config
	settings *kubeletconfig.Config // Config, or the default one
	// SystemLogs is the directory that /logs/ serves; empty means that it serves nothing.
	SystemLogs string

	// Prober probes containers; nil means the Runtime, if it implements Prober, and
	// otherwise over the network and by its ExecSync.
	Prober probe.Prober
	Log    *slog.Logger // nil means slog.Default

	// Quarantine has the pods that ended an earlier process while their workers looked after them: they are left alone. Nil has
	// none.
	Quarantine *quarantine.Quarantine
}

const (
	defaultMaxPods    = 110
	defaultStarts     = 10
	defaultDrainLimit = 5 * time.Second
	defaultDrainPause = 200 * time.Millisecond
	defaultVersion    = "v1.37.0"
	defaultDomain     = "cluster.local"
)

// A container runtime that does not answer is asked again after pauses between these.
const firstAnswer, lastAnswer = 20 * time.Millisecond, 2 * time.Second

func (o Options) check() (Options, error) {
	var errs []error
	if o.Client == nil {
		errs = append(errs, errors.New("node: Options.Client is nil"))
	}
	if o.Name == "" {
		errs = append(errs, errors.New("node: Options.Name is empty"))
	}
	if o.Runtime == nil {
		errs = append(errs, errors.New("node: Options.Runtime is nil"))
	}
	if len(o.Listeners) > 0 && (o.TLS == nil || o.ClientCAs == nil) {
		errs = append(errs, errors.New("node: Options.Listeners need TLS and ClientCAs"))
	}
	if o.RootDir != "" && !filepath.IsAbs(o.RootDir) {
		errs = append(errs, fmt.Errorf("node: Options.RootDir %q is not absolute", o.RootDir))
	}
	if o.StaticPodPath != "" && (o.ReadPod == nil || !filepath.IsAbs(o.StaticPodPath)) {
		errs = append(errs, fmt.Errorf("node: Options.StaticPodPath %q must be absolute, and needs ReadPod", o.StaticPodPath))
	}
	o = o.configured()
	if o.settings = o.Config; o.settings == nil {
		o.settings = kubeletconfig.Default()
	}
	if o.MaxPods == 0 {
		o.MaxPods = defaultMaxPods
	}
	if o.Eviction == nil {
		var err error
		if o.Eviction, err = eviction.Parse(o.thresholds()); err != nil {
			errs = append(errs, fmt.Errorf("node: Options.Config: %w", err))
		}
	}
	if o.Starts == 0 {
		o.Starts = defaultStarts
	}
	if o.DrainLimit == 0 {
		o.DrainLimit = defaultDrainLimit
	}
	if o.DrainPause == 0 {
		o.DrainPause = defaultDrainPause
	}
	var err error
	if o.Images, err = o.Images.Check(); err != nil {
		errs = append(errs, err)
	}
	if o.Version == "" {
		o.Version = defaultVersion
	}
	if o.ClusterDomain == "" {
		o.ClusterDomain = defaultDomain
	}
	if p, can := o.Runtime.(probe.Prober); can && o.Prober == nil {
		o.Prober = p
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, errors.Join(errs...)
}

// A Node is the agent of one node. It assembles the parts, and gives each pod a worker.
type Node struct {
	opts    Options
	log     *slog.Logger
	machine machine

	api        apiObjects
	files      *volumes.Files
	images     *images.Manager
	capacity   *capacity.Ledger
	isolation  isolation
	plugins    plugins
	departures *departures
	server     *server.Server
	registrar  *registration.Registrar
	metrics    *metrics.Metrics
	evictor    *pressure.Evictor
	shutdowns  []shutdown.Period // of the configuration

	abilities abilities
	starts    starts
	workers   workers
}

// apiObjects are the objects of the API server that the agent follows, and the events that it writes.
type apiObjects struct {
	recorder   *client.Recorder
	pods       *cache.Cache[*corev1.Pod]
	self       *cache.Cache[*corev1.Node] // the Node object
	services   *cache.Cache[*corev1.Service]
	references *references.Set
}

// isolation is what keeps the pods of a node apart.
type isolation struct {
	users    *users
	cgroups  *podcgroup.Tree // nil: the runtime makes the cgroups of pods; written before any worker starts
	concerns []concern       // what pods need of the node; written before any worker starts
}

// plugins are the programs that give devices to pods.
type plugins struct {
	devices  *deviceplugin.Manager    // nil: there are no device plug-ins
	claims   *dra.Manager             // nil: there are no drivers of devices; written before any worker starts
	registry *pluginregistry.Registry // written before any worker starts
}

// abilities are what the container runtime and the kernel can do. They are written before any worker starts.
type abilities struct {
	scheme       lifecycle.Runtime // of the IDs of containers
	handlers     handlers          // of the runtime
	features     *corev1.NodeFeatures
	declared     []string // features, see package nodefeature
	cgroupDriver cri.CgroupDriver
	appArmor     bool          // the kernel has it
	listening    chan struct{} // closed when the agent receives the runtime's events
}

// starts bounds what begins at the same time.
type starts struct {
	slots  chan struct{} // one per pod that may be starting
	probes chan struct{} // one per probe that is running
}

// workers are the pods of the node.
type workers struct {
	mu    sync.Mutex
	all   map[types.UID]*worker // guarded by mu
	group *run.Group            // guarded by mu; the workers' goroutines
	found map[types.UID]*found  // guarded by mu; what ran before, until it is adopted
	// arrivals are the pods of the first list; nil once that is complete.
	arrivals map[types.UID]*corev1.Pod // guarded by mu
	statics  statics                   // guarded by mu, see there
}

// New returns an agent that has not started; call [Node.Run].
func New(opts Options) (*Node, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, err
	}
	n := &Node{
		opts: opts, log: opts.Log.With("node", opts.Name), metrics: metrics.New(),
		api:       apiObjects{recorder: client.NewRecorder(opts.Client, "kubelet", opts.Name, opts.Log)},
		starts:    starts{slots: make(chan struct{}, opts.Starts), probes: make(chan struct{}, maxProbes)},
		abilities: abilities{listening: make(chan struct{})},
		workers: workers{all: map[types.UID]*worker{}, arrivals: map[types.UID]*corev1.Pod{}, statics: statics{
			running: map[types.NamespacedName]*worker{}, mirrors: map[types.NamespacedName]*corev1.Pod{}, wake: run.NewBell(),
			ran: map[types.NamespacedName]bool{}, again: map[types.NamespacedName]bool{}, outdated: map[types.NamespacedName]types.UID{},
		}},
	}
	n.shutdowns = shutdown.Periods(&n.config().KubeletConfiguration)
	if n.opts.Prober == nil {
		n.opts.Prober = prober{n: n}
	}
	n.serveMetrics()
	for _, m := range opts.Metrics {
		if err := n.metrics.Registry.Register(m); err != nil {
			return nil, fmt.Errorf("the metrics of the node agent: %w", err)
		}
	}
	n.api.pods = cache.New(opts.Client, client.Pods, cache.Options[*corev1.Pod]{FieldSelector: "spec.nodeName=" + opts.Name, Log: opts.Log})
	n.api.pods.Subscribe(n.podChanged)
	n.api.self = cache.New(opts.Client, client.Nodes, cache.Options[*corev1.Node]{FieldSelector: "metadata.name=" + opts.Name, Log: opts.Log})
	n.api.self.Subscribe(func(_, _ *corev1.Node) { n.files.NodeChanged() })
	n.api.services = cache.New(opts.Client, client.Services, cache.Options[*corev1.Service]{Log: opts.Log})
	n.departures = newDepartures(n)
	n.api.references = references.New(opts.Client, opts.Log, n.referenceChanged)
	n.registrar = registration.New(registration.Options{
		Name: opts.Name, Client: opts.Client, Runtime: opts.Runtime, Owner: opts.Owner, Labels: opts.Labels, Taints: opts.Taints, PodCIDRs: opts.PodCIDRs,
		Config: n.config(), Self: n.api.self, Metrics: n.metrics.Startup, Log: n.log, Event: n.event, Trouble: opts.Trouble,
		Arch: func() string { return n.machine.arch }, Drivers: func() bool { return n.files.HasDrivers() }, Describe: n.describe,
		Pressure: func() []corev1.NodeConditionType { return n.capacity.Pressure() }, Closing: func() bool { return n.capacity.Closing() },
	})
	n.files = volumes.New(volumes.Node{
		Name: opts.Name, Client: opts.Client, RootDir: opts.RootDir, ClusterDomain: opts.ClusterDomain, DevicePluginDir: opts.DevicePluginDir,
		SeccompRoot: opts.Seccomp.Root, Drivers: opts.CSI, LocalVolume: opts.LocalVolume, Config: n.config(),
		References: n.api.references, Recorder: n.api.recorder, Metrics: n.metrics.Volumes, Log: n.log, Registered: n.registrar.Ready(),
		Self:   func() (*corev1.Node, bool) { return n.api.self.Get("", opts.Name) },
		Memory: func() int64 { return n.machine.capacity.Memory().Value() }, Logs: n.logs,
		Users: func(pod *corev1.Pod) *cri.UserNamespace { return n.isolation.users.get(pod) },
		RecursiveReadOnly: func() bool {
			return n.abilities.handlers.feature("", (*cri.RuntimeHandlerFeatures).GetRecursiveReadOnlyMounts)
		},
		Changed: func() { n.registrar.Outdated() }, DriverRegistered: n.driverRegistered,
	})
	n.server = server.New(server.Options{
		Name: opts.Name, Listeners: opts.Listeners, Local: opts.Local, TLS: opts.TLS, ClientCAs: opts.ClientCAs, Handlers: opts.Handlers,
		Client: opts.Client, Runtime: opts.Runtime, RootDir: opts.RootDir, LogDir: opts.LogDir, SystemLogs: opts.SystemLogs, Version: opts.Version, Owner: opts.Owner,
		Config: n.config(), Reported: func() kubelet.KubeletConfiguration { return n.reported().KubeletConfiguration }, Files: n.files, Metrics: n.metrics, Log: n.log,
		Pods: n.eachPod, Pod: n.podNamed, Logs: n.logs, Health: n.registrar.RuntimeHealth,
		Machine: func() (corev1.NodeSystemInfo, int64) { return n.machine.info, n.machine.capacity.Memory().Value() },
	})
	n.capacity = capacity.New(capacity.Node{
		Name: opts.Name, OwnPorts: opts.OwnPorts, Refuse: n.refuse, Features: func() []string { return n.abilities.declared }, Metrics: n.metrics, Log: n.log,
	})
	n.evictor = pressure.New(pressure.Options{
		Thresholds: opts.Eviction, Config: n.config(), RootDir: opts.RootDir, Runtime: opts.Runtime, Files: n.files, Metrics: n.metrics.Pods, Log: n.log,
		Pods: n.evictables, Pod: n.evictableOf, Logs: n.logs, Memory: func() int64 { return n.machine.capacity.Memory().Value() },
		Conditions: n.capacity.SetPressure, Changed: n.registrar.Outdated, Event: n.event,
	})
	n.images = images.New(opts.Images, images.Node{
		Runtime: opts.Runtime, RootDir: opts.RootDir, Accounts: volumes.Accounts{Client: opts.Client}, Secret: n.secret, Pods: n.workedOn,
		Changed: func() { n.registrar.Outdated() }, Event: n.event, Metrics: n.metrics.Images, Log: n.log,
	})
	n.isolation.users = newUsers(n.files, opts.MaxPods)
	if opts.RootDir != "" && opts.DevicePluginDir != "" {
		n.plugins.devices = deviceplugin.New(deviceplugin.Options{
			Dir: opts.DevicePluginDir, Also: opts.KubeletPluginDir, State: filepath.Join(opts.RootDir, "devices.json"), Changed: n.devicesChanged, Log: n.log,
			Holder:     n.deviceHolder,
			Registered: n.metrics.Devices.Registers, Allocated: n.metrics.Devices.Gave,
		})
	}
	return n, nil
}

// serveMetrics adds the metrics of other parts, and metrics that are read from the node at each request.
func (n *Node) serveMetrics() {
	n.metrics.Serve(nodeState{n})
	if c, ok := n.opts.Runtime.(*criclient.CRI); ok {
		for _, one := range c.Collectors() {
			n.metrics.Serve(one)
		}
	}
	if p := n.opts.Images.Plugins; p != nil {
		for _, one := range p.Metrics() {
			n.metrics.Serve(one)
		}
	}
}

// Ready is closed when the Node object is registered and its condition Ready is
// True.
func (n *Node) Ready() <-chan struct{} { return n.registrar.Ready() }

// Run works until ctx is cancelled, then returns nil and leaves the pods running (N5).
// It waits for a container runtime and an API server that are not there yet. It
// returns an error only if it can't go on: the machine or the directories are not
// what it needs, or its listener broke. It is called once.
func (n *Node) Run(ctx context.Context) error {
	version, err := n.awaitRuntime(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	n.abilities.scheme = lifecycle.Runtime(version.GetRuntimeName())
	n.abilities.declared = nodefeature.Declared(version.GetRuntimeName() == api.RuntimeName)
	if n.machine, err = inspect(n.opts, version); err != nil {
		return fmt.Errorf("node %s: %w", n.opts.Name, err)
	}
	n.configure(ctx)
	if err := errors.Join(n.checkSwap(), n.files.Open(), n.openIsolation(ctx), n.openProcessors()); err != nil {
		return fmt.Errorf("node %s: %w", n.opts.Name, err)
	}
	if err := n.images.Open(ctx); err != nil {
		return fmt.Errorf("node %s: %w", n.opts.Name, err)
	}
	if err := n.openPlugins(); err != nil {
		return fmt.Errorf("node %s: %w", n.opts.Name, err)
	}
	n.isolation.concerns = n.concernsOf()
	if n.opts.LogLinks != "" {
		n.unlinkBelow(n.opts.LogDir, "") // of pods that ended without this agent
	}
	last := run.Stage{
		{Name: "registration", Run: n.registrar.Run},
		{Name: "lease", Run: n.registrar.RenewLease},
		{Name: "runtime events", Run: n.listen},
		{Name: "pods", Run: n.work},
		{Name: "image garbage collection", Run: n.images.Collect},
	}
	if len(n.opts.Listeners) > 0 {
		last = append(last, run.Task{Name: "kubelet API", Run: n.server.Run})
	}
	last = append(last, n.files.Tasks()...)
	if n.plugins.claims != nil {
		last = append(last, run.Task{Name: "resource claims", Run: n.plugins.claims.Run}, run.Task{Name: "plug-ins", Run: n.plugins.registry.Run})
	}
	if n.opts.RootDir != "" {
		last = append(last, run.Task{Name: "eviction", Run: n.evictor.Run})
	}
	last = append(last, n.shutdownTask()...)
	first := run.Stage{
		{Name: "events", Run: n.api.recorder.Run},
		{Name: "services", Run: n.api.services.Run},
		{Name: "references", Run: n.api.references.Run},
	}
	if n.opts.Owner != "" && n.opts.LogDir != "" {
		first = append(first, run.Task{Name: "log rotation", Run: n.rotateLogs})
	}
	if n.servesHealth() {
		first = append(first, run.Task{Name: "health check port", Run: n.serveHealth})
	}
	if n.plugins.devices != nil {
		first = append(first, run.Task{Name: "device plug-ins", Run: n.serveDevicePlugins})
	}
	if n.plugins.devices != nil || n.plugins.claims != nil {
		first = append(first, run.Task{Name: "API about devices of pods", Run: n.servePodResources})
	}
	if n.opts.DrainPause >= 0 {
		first = append(first, run.Task{Name: "departures", Run: n.followDepartures})
	}
	return run.Stages(ctx, first, last)
}

// awaitRuntime returns the runtime's version when it answers.
func (n *Node) awaitRuntime(ctx context.Context) (version versionResponse, err error) {
	for failures := 1; ; failures++ {
		version, err = n.opts.Runtime.Version(ctx)
		if err == nil {
			return version, nil
		}
		if failures == 1 && ctx.Err() == nil {
			n.log.Warn("container runtime does not answer, waiting for it", "err", err)
		}
		if !run.Pause(ctx, run.Backoff{First: firstAnswer, Max: lastAnswer}.Pause(failures)) {
			return nil, nil
		}
	}
}

// enter waits for a slot for starting a pod; exit frees it.
func (n *Node) enter(ctx context.Context) bool {
	select {
	case n.starts.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (n *Node) exit() { <-n.starts.slots }

// yield frees a slot for as long as a pod waits; resume takes one again without waiting for ctx: the caller frees it.
func (n *Node) yield() (resume func()) {
	n.exit()
	return func() { n.starts.slots <- struct{}{} }
}

// logs returns the directory of the pod's logs.
func (n *Node) logs(pod *corev1.Pod) string {
	if n.opts.LogDir == "" {
		return ""
	}
	return crispec.LogDirectory(n.opts.LogDir, pod.Namespace, pod.Name, string(pod.UID))
}

// reference is the object of events about the node. Kubernetes sets its UID to the name,
// and tools search for that.
func (n *Node) reference() corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Node", Name: n.opts.Name, UID: types.UID(n.opts.Name)}
}

// event records an event about the node.
func (n *Node) event(kind, reason, format string, args ...any) {
	n.api.recorder.EventFor(n.reference(), kind, reason, format, args...)
}

// describe fills in what the parts of the node have in its status.
func (n *Node) describe(s *corev1.NodeStatus) {
	s.Capacity, s.Allocatable = n.withDevices(n.machine.capacity, n.machine.allocatable)
	s.Addresses = n.opts.Addresses
	s.NodeInfo = n.machine.info
	s.DaemonEndpoints.KubeletEndpoint.Port = n.port()
	s.RuntimeHandlers, s.Features, s.DeclaredFeatures = n.abilities.handlers.status(), n.abilities.features, n.abilities.declared
	if n.files.HasDrivers() {
		s.VolumesInUse = n.files.InUse()
	}
}
