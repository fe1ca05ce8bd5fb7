package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/kubelet"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/manager"
	"github.com/sampan-io/sampan/controller/servicecidrs"
	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node"
	imagecredentials "github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/localdisk"
	"github.com/sampan-io/sampan/proxy/trace"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/config"
	"github.com/sampan-io/sampan/simulation"
	"github.com/sampan-io/sampan/simulation/nodes"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// kubeletPort is where clients of Kubernetes expect the node agent.
const kubeletPort = 10250

// controllerManager is the user as whom the shared caches are filled. It may list and watch everything, and has few
// other rights. Each controller writes as the service account that upstream's has.
const controllerManager = "system:kube-controller-manager"

// workers returns the parts that work on objects, and the names of the nodes. They
// read whole resources from caches.
func (c *cluster) workers(p *controlPlane, caches *cache.Shared) (run.Stage, []string, error) {
	var stage run.Stage
	// Unlike a controller it is not even made: what it is notified of would pile up.
	if !c.Settings.Controllers.RunsScheduler() {
		c.Log.Info("the scheduler is disabled", "controllers", string(c.Settings.Controllers))
	} else {
		sched, err := c.scheduler(p, caches)
		if err != nil {
			return nil, nil, err
		}
		stage = run.Stage{{Name: "scheduler", Run: sched.Run, Ready: sched.Ready()}}
	}
	controllers, err := c.controllers(p, caches)
	if err != nil {
		return nil, nil, err
	}
	disks, err := c.localDisk(p, caches)
	if err != nil {
		return nil, nil, err
	}
	nodes, names, err := c.nodes(p, caches)
	return slices.Concat(stage, controllers, disks, nodes), names, err
}

// controllers returns the controllers that the settings select, and the one that repairs IPAddresses for our API server.
func (c *cluster) controllers(p *controlPlane, caches *cache.Shared) (run.Stage, error) {
	var stored []client.Resource[client.Object]
	for _, k := range p.catalog.Kinds() {
		if k.Answered() || k.Hub() != k || k.Untyped() {
			continue // no objects of its own are stored, or it may go
		}
		stored = append(stored, client.Resource[client.Object]{GroupVersionResource: k.GVR(), Kind: k.Kind, Namespaced: k.Namespaced})
	}
	pool, err := c.Settings.Pool()
	if err != nil {
		return nil, err
	}
	// The collector asks other servers, too, and so do the caches.
	reading, readingTask, err := inside("caches", p.server.HandlerAs(auth.User{Name: controllerManager, Groups: []string{auth.GroupAuthenticated}}))
	if err != nil {
		return nil, err
	}
	collecting, collectingTask, err := inside("the garbage collector", p.server.HandlerAs(accountUser(manager.Collector)))
	if err != nil {
		return nil, err
	}
	common := controller.Config{Client: p.as(controllerManager), Caches: caches, Log: c.Log, Quarantine: c.quarantine, As: func(name string) client.Interface {
		if name != manager.Collector {
			return p.asAccount(name)
		}
		return routed{p.asAccount(name), collecting, p.aggregator}
	}}
	others := elsewhere{p.aggregator}
	made := manager.New(manager.Options{
		Config: common, Selection: c.Settings.Controllers.Selection(),
		Resources: stored, Served: []cache.Served{customResources(p.catalog), others.Served}, Others: others,
		Metadata: routed{p.as(controllerManager), reading, p.aggregator},
		Raw:      documents{server: p.server.HandlerAs(accountUser(manager.Autoscaler))}, Roots: c.authority,
		Signer: p.credentials.tokens, Authority: c.authority, Pool: &pool,
		PodNetworks: c.podPool(), Servers: c.servers(),
	})
	return slices.Concat(run.Stage{readingTask, collectingTask}, made.Stage, servicecidrs.RepairTasks(common)), nil
}

// localDisk returns the provisioner of local volumes.
func (c *cluster) localDisk(p *controlPlane, caches *cache.Shared) ([]run.Task, error) {
	user := auth.User{Name: "system:sampan:local-provisioner", Groups: []string{auth.GroupAuthenticated}}
	o := localdisk.Options{Client: p.server.As(user), Caches: caches, Log: c.Log}
	if c.real() {
		o.Node, o.Agents = c.Settings.NodeName, documents{server: p.server.HandlerAs(user), most: localdisk.MaxAnswer}
	}
	return localdisk.Tasks(o)
}

// scheduler returns the scheduler, whose metrics are among the server's.
func (c *cluster) scheduler(p *controlPlane, caches *cache.Shared) (*scheduler.Scheduler, error) {
	conf := config.Default(builtin.Default())
	if path := c.Settings.SchedulerConfig; path != "" {
		var err error
		if conf, err = config.Load(path, config.Available{Default: builtin.Default()}); err != nil {
			return nil, fmt.Errorf("--scheduler-config: %w", err)
		}
	}
	sched, err := scheduler.New(conf.Options(scheduler.Options{Client: p.as("system:kube-scheduler"), Caches: caches, Quarantine: c.quarantine, Log: c.Log}))
	if err != nil {
		return nil, err
	}
	return sched, p.server.Measure(sched.Metrics())
}

func (c *cluster) nodes(p *controlPlane, caches *cache.Shared) (run.Stage, []string, error) {
	if c.real() {
		n, err := c.realNode(c.local(p))
		if err != nil {
			return nil, nil, err
		}
		role := newRoleLabel(p.as("system:apiserver", "system:masters"), caches, c.Settings.NodeName, c.Log)
		return slices.Concat(run.Stage{c.nodeTask(n), role.task()}, c.routes(caches)), []string{c.Settings.NodeName}, nil
	}
	if c.hasFleet() {
		return c.fleet(p, caches)
	}
	links := simulated.NewLinks(caches)
	var stage run.Stage
	var names []string
	for i := range c.Settings.SimulatedNodes {
		name := c.Settings.NodeName + "-" + strconv.Itoa(i)
		n, err := c.simulatedNode(p, links, name, i)
		if err != nil {
			return nil, nil, err
		}
		stage = append(stage, run.Task{Name: "node " + name, Run: n.Run, Ready: n.Ready()})
		names = append(names, name)
	}
	return stage, names, nil
}

// nodeTask returns the task of the agent of this host's node.
func (c *cluster) nodeTask(n *node.Node) run.Task {
	task := run.Task{Name: "node", Run: n.Run, Ready: n.Ready()}
	if dir := c.Settings.CNIConfDir; dir != "" && !local.HasCNI(dir) {
		c.Log.Info("the node will be Ready when a network add-on has written its configuration", "directory", dir)
		task.Ready = nil // the add-on is a pod
	}
	return task
}

// fullAgents is up to how many simulated nodes, of which no file says more, have the
// real agent each (decision 0010): it costs a hundred times what a node of a fleet does.
const fullAgents = 100

// hasFleet reports whether one agent serves all simulated nodes.
func (c *cluster) hasFleet() bool {
	return !c.real() && (c.Settings.SimulatedNodeFile != "" || c.Settings.SimulatedNodes > fullAgents)
}

// nodeMetrics returns the function that reads what the pods on a node use: from its kubelet, which nodes of a fleet do not have.
func (c *cluster) nodeMetrics(kubelets *kubelet.Client, objects admission.Reader) func(context.Context, *corev1.Node) ([]byte, error) {
	if !c.hasFleet() {
		return kubelets.ResourceMetrics
	}
	plan := sync.OnceValues(c.Settings.Plan) // read when it is needed
	return func(ctx context.Context, n *corev1.Node) ([]byte, error) {
		if !simulation.Simulated(n) {
			return kubelets.ResourceMetrics(ctx, n)
		}
		plan, err := plan()
		if err != nil {
			return nil, err
		}
		objs, err := objects.List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), "", fields.Set{"spec.nodeName": n.Name})
		if err != nil {
			return nil, err
		}
		var pods []*corev1.Pod
		for _, obj := range objs {
			if p, ok := obj.(*corev1.Pod); ok {
				pods = append(pods, p)
			}
		}
		return nodes.ResourceMetrics(plan, pods, time.Now()), nil
	}
}

// fleet returns the one agent of many simulated nodes.
func (c *cluster) fleet(p *controlPlane, caches *cache.Shared) (run.Stage, []string, error) {
	plan, err := c.Settings.Plan()
	if err != nil {
		return nil, nil, err
	}
	f, err := nodes.New(nodes.Options{
		Client:      p.as("system:sampan:simulated-nodes"),
		Caches:      caches,
		As:          func(node string) client.Interface { return p.as("system:node:"+node, "system:nodes") },
		Plan:        plan,
		Quarantine:  c.quarantine,
		PodNetworks: c.Settings.Pods.All(),
		Version:     KubernetesVersion + ownVersion,
		Trouble:     c.troubles.note,
		Log:         c.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, name := range plan.Names() {
		names = append(names, name)
	}
	return run.Stage{{Name: "simulated nodes", Run: f.Run, Ready: f.Ready()}}, names, nil
}

// servingCertificate returns the certificate with which a node of this process serves its API.
func (c *cluster) servingCertificate(name string, addresses []netip.Addr) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	subject := pki.Subject{CommonName: "system:node:" + name, Organizations: []string{"system:nodes"}, DNSNames: []string{name}}
	for _, a := range addresses {
		subject.IPs = append(subject.IPs, a.AsSlice())
	}
	return c.authority.Renewed(subject).Server
}

func (c *cluster) nodeOptions(api access, name string, listeners []net.Listener, addresses ...netip.Addr) node.Options {
	var told []corev1.NodeAddress
	for _, a := range addresses {
		told = append(told, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	return node.Options{
		Client:    api.node(name),
		Name:      name,
		Listeners: listeners,
		Local:     c.agents.listen(name),
		TLS:       &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: api.serving(name, addresses)},
		ClientCAs: api.pool,
		Addresses: append(told, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name}),
		Version:   KubernetesVersion + ownVersion,

		ClusterDNS:    c.names.forPods(c.Settings.Services),
		ClusterDomain: c.domain(),

		Quarantine: c.quarantine,
		Trouble:    func(err error) { c.troubles.note(name, err) },
		Log:        c.Log,
	}
}

// ownVersion is the end of the version of this program in the words of Kubernetes: of the API server, and of the kubelet in
// the status of each node that it serves.
const ownVersion = "+sampan"

// unverified reports whether the certificate of a node's kubelet is not verified. Only administrators set the label: a node
// that could would also choose the address that the API server connects to.
func unverified(node *corev1.Node) bool {
	_, ok := node.Labels[names.UnverifiedKubelet]
	return ok
}

// kubeletPlugins is the directory of device plug-ins of upstream's kubelet, which plug-ins mount. It belongs to the first agent of the
// machine that asks for it.
const kubeletPlugins = "/var/lib/kubelet/device-plugins"

// realNode returns the agent of this host's node, which serves the metrics of other parts of the process beside its own.
func (c *cluster) realNode(api access, metrics ...prometheus.Collector) (*node.Node, error) {
	cri, err := criclient.Dial(c.runtimeEndpoint())
	if err != nil {
		return nil, err
	}
	at := c.hostAddresses()
	listeners, err := listenOn(context.Background(), at, kubeletPort) //nolint:forbidigo // it blocks for nothing
	if err != nil {
		return nil, fmt.Errorf("listening for the node agent: %w", err)
	}
	for _, l := range listeners {
		c.Log.Info("node agent listening", "address", l.Addr(), "for", "the API server")
	}
	o := c.nodeOptions(api, c.Settings.NodeName, listeners, at...)
	o.Runtime, o.Metrics = cri, metrics
	o.OwnPorts = c.ownPorts(api.ports...)
	o.PodCIDRs, o.MaxPods = texts(c.networks), c.maxPods()
	o.RootDir = c.Profile.AgentRoot()
	o.LogDir = filepath.Join(c.Profile.DataDir, "logs")
	o.CgroupRoot = c.Profile.Cgroup()
	o.DevicePluginDir, o.KubeletPluginDir = filepath.Join(c.Profile.DataDir, "device-plugins"), kubeletPlugins
	o.CSI = true
	o.Seccomp.Root = filepath.Join(c.Profile.DataDir, "seccomp")
	volumes := filepath.Join(c.Profile.DataDir, "volumes")
	o.Handlers = localdisk.Handlers(volumes)
	o.LocalVolume = func(pv *corev1.PersistentVolume) string { return localdisk.Path(volumes, pv) }
	o.Handlers["GET "+trace.AgentPath] = c.tracer
	if i := c.Settings.Images; i.CredentialConfig != "" {
		if o.Images.Plugins, err = imagecredentials.Load(i.CredentialConfig, i.CredentialPrograms, c.Log); err != nil {
			return nil, err
		}
	}
	if c.kubelet.Has("podLogsDir") {
		o.LogDir, o.LogLinks = filepath.Clean(c.kubelet.PodLogsDir), "/var/log/containers" // as upstream's kubelet has it
	}
	c.zPages(&o)
	o.Config, o.SystemLogs = c.kubelet, "/var/log"
	if c.foreign() {
		o.Owner, o.CgroupRoot = c.Profile.Name, c.Profile.Cgroup()
	}
	o.SystemBus = cmp.Or(os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), node.DefaultSystemBus)
	o.StaticPodPath, o.ReadPod = c.Settings.StaticPodPath, readPod
	return node.New(o)
}

// simulatedNode serves the agent's API on a free port of loopback.
func (c *cluster) simulatedNode(p *controlPlane, links *simulated.Links, name string, i int) (*node.Node, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // it blocks for nothing
	if err != nil {
		return nil, fmt.Errorf("listening for a simulated node: %w", err)
	}
	o := c.nodeOptions(c.local(p), name, []net.Listener{l}, netip.MustParseAddr("127.0.0.1"))
	o.Client = links.To(name, o.Client)
	networks := c.Settings.NodeNetworks(i)
	o.PodCIDRs = texts(networks)
	o.LogDir = filepath.Join(c.Profile.RunDir, "logs", name)
	o.DrainPause = -1
	pods, err := podsOf(p, name)
	if err != nil {
		return nil, err
	}
	o.Runtime, err = simulated.New(simulated.Options{PodCIDRs: networks, Pods: pods, LogDir: o.LogDir})
	if err != nil {
		return nil, err
	}
	return node.New(o)
}

// podsOf returns the stored pods of a node.
func podsOf(p *controlPlane, node string) ([]*corev1.Pod, error) {
	ctx := context.Background() //nolint:forbidigo // it blocks for nothing
	stored, err := operation.NewReader(p.catalog, p.store).List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), "", fields.Set{"spec.nodeName": node})
	if err != nil {
		return nil, fmt.Errorf("reading the pods of node %s: %w", node, err)
	}
	pods := make([]*corev1.Pod, 0, len(stored))
	for _, obj := range stored {
		pods = append(pods, obj.(*corev1.Pod))
	}
	return pods, nil
}
