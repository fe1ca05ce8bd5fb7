package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/encryption"
)

// Options configures [Run]. All fields but Log and Report are required; Runtime
// only for a real node.
type Options struct {
	Profile  local.Profile
	Settings local.Settings // settled, see [local.Profile.Settle]
	Version  string

	// Runtime puts the program sampan-runtime into a directory, if it is not there
	// yet, and returns its path.
	Runtime func(dir string) (string, error)

	Flags map[string]string // of the command line, with their values

	// Process has the parts that the cluster shares with others of this process, whose caller runs it; nil means that there
	// are no others.
	Process *Process

	Report local.Reporter // receives the progress of the start
	Log    *slog.Logger   // nil means slog.Default
}

// A cluster holds the inputs of the parts.
type cluster struct {
	Options
	started    time.Time
	shared     bool // the process has other clusters
	authority  *pki.Authority
	frontProxy *pki.Authority  // of front proxies
	tokenKeys  *pki.TokenKeys  // of service accounts; followed by the task "files of keys"
	runtime    *runtimeProcess // nil with simulated nodes and with a runtime of others
	networks   []netip.Prefix  // of the pods of this host's node, one of each IP family, the primary one first
	bridge     []netip.Addr    // this host's addresses among the pods, the primary one first; none with simulated nodes
	names      *nameSockets    // nil without cluster DNS
	tracer     http.Handler    // of Services on this host; nil with simulated nodes
	kubelet    *kubeletconfig.Config
	alone      *alone  // nil unless this is only an API server
	agents     agents  // of nodes in this process
	notices    notices // about the store
	troubles   troubles
	warnings   warnings

	audit      *audit.Auditor // nil: nothing is recorded
	encryption *encryption.Encryption
	rewrite    func() // of the store
	queues     *controller.Metrics
	quarantine *quarantine.Quarantine // nil: there was no room for it
}

// A busy cluster may hold headroom as garbage, or, if that is more, garbagePercent of what lives. With Go's own rule
// the heap of a small cluster, 5 MiB, is collected dozens of times a second under load, which takes a tenth to a
// fifth of the CPU of a request. When it is quiet all of it is given back.
const (
	headroom       = 64 << 20
	garbagePercent = 200
)

// Run runs a cluster until ctx is over. Pods of a real node go on running then.
// It returns an error if the cluster can't be started or a part of it broke.
func Run(ctx context.Context, o Options) error {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	alone := o.Process == nil
	if alone {
		o.Process = NewProcess(1, o.Log)
	}
	c := &cluster{Options: o, shared: !alone, started: time.Now(), notices: newNotices(), queues: &controller.Metrics{}}
	backend, err := c.claim(ctx)
	if err != nil {
		return err
	}
	running := false
	defer func() {
		if !running { // otherwise the store has closed it
			_ = backend.Close()
		}
	}()
	if err := c.prepare(); err != nil {
		return err
	}
	if c.runtime != nil {
		unpacking := run.NewGroup(ctx, 0)
		unpacking.Go(c.runtime.unpack)
		defer unpacking.Wait() // it is short
	}
	if alone {
		defer o.Process.Bound()()
	}
	defer c.protect()()
	listeners, err := c.listen(ctx)
	if err != nil {
		return err
	}
	control, err := c.newControlPlane(ctx, backend, listeners)
	if err != nil {
		return err
	}
	c.openQuarantine()
	c.sweepQuarantine(control.catalog, control.store)
	caches := cache.NewShared(control.as(controllerManager), o.Log)
	proxy, err := c.proxy(c.local(control), caches)
	if err != nil {
		return err
	}
	workers, nodes, err := c.workers(control, caches)
	if err != nil {
		return err
	}
	names, err := c.nameServer(caches)
	if err != nil {
		return err
	}
	if err := c.saveFiles(ctx, control.url()); err != nil { // after all that can be wrong with the settings
		return err
	}
	stages := c.controlStages(control)
	if alone {
		stages[0] = append(stages[0], run.Task{Name: "memory", Run: o.Process.Run})
	}
	if c.runtime != nil {
		stages[firstStage] = append(stages[firstStage], run.Task{Name: "container runtime", Run: c.runtime.Run}) // awaited below
		stages[objectStage] = append(stages[objectStage], c.runtime.awaited())
	}
	stages = append(
		stages,
		run.Stage{{Name: "caches", Run: caches.Run, Ready: caches.Ready()}},
		slices.Concat(workers, names, c.noticeTasks(control.as("system:apiserver", "system:masters")), c.credentialTasks(control), c.snapshotTasks(control), c.quarantineTasks(control.as("system:apiserver", "system:masters"))),
	)
	stages = append(stages, proxy...)
	if s := c.firewall(c.local(control)); s != nil {
		stages = append(stages, s)
	}
	stages = append(stages, run.Stage{{Name: "announcement", Run: func(ctx context.Context) error {
		return c.announce(ctx, local.Instance{
			Name: c.Profile.Name, Version: c.Version, Server: control.url(), Nodes: nodes, Simulated: !c.real(),
			DataDir: c.Profile.DataDir, Started: c.started, Expires: c.Settings.Expiry.At, Shared: c.shared,
		})
	}}})
	if err := c.measure(control); err != nil {
		return err
	}
	stages[0] = append(stages[0], progress(stages, &c.troubles, c.slow))
	running = true
	err = run.Stages(controller.WithMetrics(ctx, c.queues), stages...)
	o.Log.InfoContext(ctx, "cluster stopped", "name", o.Profile.Name, "err", err)
	return err
}

// Stages of controlStages that a real node adds to.
const (
	firstStage  = 1
	objectStage = 3
)

// controlStages returns the parts of the control plane without controllers.
func (c *cluster) controlStages(control *controlPlane) []run.Stage {
	first := run.Stage{
		{Name: "store", Run: control.store.Run, Ready: control.store.Ready()},
		{Name: "encryption of the store", Run: c.encryption.Run},
	}
	return []run.Stage{
		{c.Process.add(c, func() { apiserver.Release(control.catalog, control.store) })},
		append(first, c.auditTasks()...),
		{
			{Name: "API server", Run: control.server.Run, Ready: control.server.Ready()},
			{Name: "policy", Run: func(ctx context.Context) error {
				follow.Policy(ctx, control.catalog, control.store, control.policy)
				return nil
			}},
			{Name: "flow control", Run: control.server.FollowFlowControl},
			{Name: "admission webhooks", Run: control.followWebhooks},
			{Name: "admission policies", Run: func(ctx context.Context) error {
				follow.AdmissionPolicies(ctx, control.catalog, control.store, control.admissionPolicies)
				return nil
			}},
			{Name: "admission policy types", Run: control.server.CheckAdmissionPolicies},
			{Name: "custom resources", Run: control.definitions.Run, Ready: control.definitions.Ready()},
			{Name: "judgement of custom resources", Run: control.definitions.Judge},
		},
		{
			{Name: "bootstrap", Run: control.bootstrap.Run, Ready: control.bootstrap.Ready()},
			{Name: "aggregation", Run: control.aggregate, Ready: control.aggregator.Ready()},
		},
	}
}

// real reports whether there is a node with real containers.
func (c *cluster) real() bool { return c.alone == nil && !c.Settings.Simulated() }

// joined returns networks in the format of flags.
func joined(networks []netip.Prefix) string { return strings.Join(texts(networks), ",") }

// texts returns what things are called.
func texts[T fmt.Stringer](all []T) []string {
	names := make([]string, 0, len(all))
	for _, one := range all {
		names = append(names, one.String())
	}
	return names
}

// killedTimeout is far more than the kernel takes to free a process's resources.
const killedTimeout = 30 * time.Second

// claim locks the run directory, so that this is the only process with the cluster's
// name, and the data directory. Until it has both locks it changes nothing. It waits
// for the end of an earlier process that was killed and still holds ports and locks.
func (c *cluster) claim(ctx context.Context) (store.Backend, error) {
	self, err := c.claimName(ctx)
	if err != nil {
		return nil, err
	}
	backend, err := c.openStore()
	if err != nil {
		return nil, err
	}
	if c.real() && !c.foreign() && c.Settings.CNIConfDir == "" { // the bridge of CNI plug-ins may have that address
		if err := c.Profile.CheckBridge(c.Settings.Pods); err != nil {
			return nil, errors.Join(err, backend.Close())
		}
	}
	if err := c.Profile.MakeRunDir(); err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	err = c.Profile.Save(local.Instance{
		Name: c.Profile.Name, Version: c.Version, Process: self, Simulated: !c.real(), DataDir: c.Profile.DataDir, Started: c.started,
		Expires: c.Settings.Expiry.At, Shared: c.shared,
	})
	if err == nil && c.foreign() {
		err = c.Profile.SaveRuntime(c.foreignRuntime())
	}
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	return backend, nil
}

// claimName makes sure that this is the only process with the cluster's name, and returns it.
func (c *cluster) claimName(ctx context.Context) (self local.Process, err error) {
	i, running, err := c.Profile.Instance()
	if err != nil {
		return self, err
	}
	if self, err = local.Self(); err != nil {
		return self, fmt.Errorf("reading the state of this process: %w", err)
	}
	if running && i.Process != self {
		return self, fmt.Errorf("cluster %s is already running as process %d; stop it with `sampan down --name=%s`", c.Profile.Name, i.Process.PID, c.Profile.Name)
	}
	if i.Process != self {
		patience, cancel := context.WithTimeoutCause(ctx, killedTimeout, fmt.Errorf("process %d of cluster %s was killed but does not exit", i.Process.PID, c.Profile.Name))
		err := i.Process.Wait(patience)
		cancel()
		if err != nil {
			return self, err
		}
	}
	if other := c.Profile.At(i).DataDir; other != c.Profile.DataDir && i.Runtime.Alive() {
		return self, fmt.Errorf("pods of cluster %s are still running, with the data in %s; stop them with `sampan down --name=%s`", c.Profile.Name, other, c.Profile.Name)
	}
	if err := c.sameRuntime(i.Runtime); err != nil {
		return self, err
	}
	return self, nil
}

// sameRuntime returns an error if an earlier run has left pods in another container runtime.
func (c *cluster) sameRuntime(old local.Runtime) error {
	if old.Endpoint == c.Settings.RuntimeEndpoint || !old.Alive() {
		return nil
	}
	name := func(endpoint string) string { return cmp.Or(endpoint, "Sampan's own") }
	return fmt.Errorf("the pods of cluster %s are in the container runtime %s; before the cluster is started with %s, stop them with `sampan down --name=%s`",
		c.Profile.Name, name(old.Endpoint), name(c.Settings.RuntimeEndpoint), c.Profile.Name)
}

// prepare makes the common inputs of the parts.
func (c *cluster) prepare() (err error) {
	if c.tokenKeys, err = pki.OpenTokenKeys(c.pkiDir()); err != nil {
		return err
	}
	if err := c.prepareServer(); err != nil {
		return err
	}
	if c.real() {
		return errors.Join(c.loadKubeletConfig(), c.prepareNode(c.Settings.NodeNetworks(0)))
	}
	return err
}

// prepareServer makes the inputs of the API server, except for the keys of tokens.
func (c *cluster) prepareServer() (err error) {
	if c.authority, err = pki.Open(c.pkiDir(), c.started); err != nil {
		return err
	}
	if c.frontProxy, err = pki.OpenFrontProxy(c.pkiDir(), c.started); err != nil {
		return err
	}
	return errors.Join(c.openEncryption(), c.openAudit())
}

// openStore opens the store in the data directory.
func (c *cluster) openStore() (store.Backend, error) {
	return disk.Open(filepath.Join(c.Profile.DataDir, "store"), disk.Options{
		Notify: c.notices.add, Log: c.Log,
		History: disk.History{Keep: c.Settings.History.Window(), Max: c.Settings.History.Bytes()},
		Reseal:  func(key string, data []byte) []byte { return c.encryption.Reseal(key, data) }, Rewritten: c.rewritten,
	})
}

// slow reports a part that is not ready in time, to the log and to the process that started this one.
func (c *cluster) slow(step string) {
	c.Log.Warn(step, "after", time.Since(c.started).Round(time.Second))
	c.Report.Step(step + " (log: " + c.Profile.Log() + ")")
}

// prepareNode makes the inputs of the parts of a real node, whose pods have these networks.
func (c *cluster) prepareNode(networks []netip.Prefix) error {
	c.networks = networks
	for _, n := range networks {
		c.bridge = append(c.bridge, n.Addr().Next())
	}
	if c.foreign() {
		return c.makeNodeLink()
	}
	c.runtime = c.newRuntime()
	return nil
}

// hostAddresses returns the addresses at which other parts of the cluster reach this host: the advertised addresses,
// if there are any, because other machines reach them as well.
func (c *cluster) hostAddresses() []netip.Addr {
	if all := c.Settings.Advertised(); len(all) > 0 {
		return all
	}
	return c.bridge
}

// announce writes the state file of the running cluster, reports readiness to the
// process that started it, and returns when ctx is cancelled.
func (c *cluster) announce(ctx context.Context, i local.Instance) (err error) {
	if i.Process, err = local.Self(); err != nil {
		return fmt.Errorf("reading the state of this process: %w", err)
	}
	i.Warnings = c.warnings.list()
	i.ServiceNetwork, i.ReadyAfter = c.Settings.Services.String(), time.Since(c.started)
	switch {
	case c.runtime != nil:
		i.Runtime = c.runtime.current()
	case c.foreign():
		i.Runtime = c.foreignRuntime()
	}
	if err := c.Profile.Save(i); err != nil {
		return err
	}
	c.Log.InfoContext(ctx, "cluster ready", "name", i.Name, "server", i.Server, "after", i.ReadyAfter)
	c.Report.Ready(i)
	<-ctx.Done()
	return nil
}

// writeKubeconfig writes the administrator's credentials, unless the existing ones are still valid.
func (c *cluster) writeKubeconfig(url string, now time.Time) error {
	subject := pki.Subject{CommonName: "kubernetes-admin", Organizations: []string{"system:masters"}}
	saved, ok := c.Profile.SavedCredentials()
	if ok && saved.Server == url && bytes.Equal(saved.CA, c.authority.CertificatePEM()) && c.authority.Good(subject, saved.Cert, saved.Key, now) {
		return nil
	}
	cert, err := c.authority.Issue(subject, now)
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := pki.PEM(cert)
	if err != nil {
		return err
	}
	return c.Profile.SaveKubeconfig(local.Credentials{Server: url, CA: c.authority.CertificatePEM(), Cert: certPEM, Key: keyPEM})
}

// saveFiles writes the files of the data directory that are not of the store. A full disk does
// not keep the cluster from starting: without them the next start may have another port, and
// clients have to use the credentials that they have.
func (c *cluster) saveFiles(ctx context.Context, url string) error {
	for _, err := range []error{c.writeKubeconfig(url, c.started), c.Profile.Keep(c.Settings), c.Profile.KeepOrigin()} {
		switch {
		case local.NoSpace(err):
			c.Log.WarnContext(ctx, "no disk space for a state file of the cluster", "err", err)
		case err != nil:
			return err
		}
	}
	if err := c.Profile.Record(); err != nil {
		c.Log.WarnContext(ctx, "when the cluster is stopped, commands for it need --data-dir", "err", err)
	}
	return nil
}
