package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cluster/local"
)

// Options configures the verbs. All fields are required.
type Options struct {
	Version string

	// Serve runs a cluster until ctx is cancelled, and reports to s when it is ready.
	Serve func(ctx context.Context, s Service) error

	// Share returns functions for clusters that share this process: follow runs their common part until ctx is
	// cancelled, and serve is Serve for one of them.
	Share func(clusters int, log *slog.Logger) (
		follow func(ctx context.Context) error, serve func(ctx context.Context, s Service) error,
	)

	// Join runs a node of a cluster of another machine until ctx is cancelled, and reports when it is Ready.
	Join func(ctx context.Context, j Joined) error

	// Clean removes the kernel state of a cluster of this machine when its
	// processes died: links, rules, mounts, cgroups. It is idempotent.
	Clean func(ctx context.Context, p local.Profile, i local.Instance) error

	// Verb runs another verb of the command line, as the demo does, and returns
	// its exit code.
	Verb func(ctx context.Context, in io.Reader, args ...string) int
}

// A Service is what `serve` shall run.
type Service struct {
	Profile  local.Profile
	Settings local.Settings
	Report   local.Reporter
	Log      *slog.Logger
	Flags    map[string]string // of the command line, with their values
}

// Commands returns the verbs. They read the global flags --name, --data-dir and
// --kubeconfig of the root that they are added to.
func Commands(o Options) []*cobra.Command {
	kubeconfig := []string{"kubeconfig"} // the file that a context is written to, or removed from
	return append(onThisMachine([]*cobra.Command{
		upCommand(o), downCommand(o), statusCommand(o), kubeconfigCommand(), serveCommand(o), certsCommand(), encryptionCommand(), joinCommand(o),
		agentCommand(o), leaveCommand(o), snapshotCommand(), forkCommand(o), resetCommand(),
	}, map[string][]string{
		"up": kubeconfig, "serve": kubeconfig, "fork": kubeconfig, "kubeconfig": {"kubeconfig", "server"},
		"down": {"kubeconfig", "context"}, "status": {"kubeconfig", "context"},
	}), demoCommand(o))
}

// named returns the cluster that the global flags name, with its data where they say or by default.
func named(cmd *cobra.Command) (local.Profile, error) {
	// A script's variable that is not set must not mean the default cluster: it
	// could be purged.
	for _, name := range []string{"name", "data-dir"} {
		if f := cmd.Flag(name); f != nil && f.Changed && f.Value.String() == "" {
			return local.Profile{}, fmt.Errorf("--%s must not be empty", name)
		}
	}
	return local.NewProfile(flag(cmd, "name"), flag(cmd, "data-dir"))
}

// profileOf returns the cluster that the global flags name. One that was started
// with a data directory of its own is known by its name alone from then on.
func profileOf(cmd *cobra.Command) (local.Profile, error) {
	p, err := named(cmd)
	if err != nil || flag(cmd, "data-dir") != "" {
		return p, err
	}
	i, _, err := p.Instance()
	if err != nil {
		return p, err
	}
	if i.DataDir != "" {
		p.DataDir = i.DataDir
		return p, nil
	}
	return p.Located()
}

// found returns the cluster that the global flags name, its record of
// itself, and whether it runs. The data are where it has them; to say with
// --data-dir that they are elsewhere is an error.
func found(cmd *cobra.Command) (p local.Profile, i local.Instance, running bool, err error) {
	if p, err = profileOf(cmd); err != nil {
		return p, i, false, err
	}
	if i, running, err = p.Instance(); err != nil {
		return p, i, false, err
	}
	at := p.At(i)
	if at.DataDir != p.DataDir && flag(cmd, "data-dir") != "" {
		return p, i, false, fmt.Errorf("the data of cluster %s is in %s, not in %s; pass that directory with --data-dir, or another cluster with --name", p.Name, at.DataDir, p.DataDir)
	}
	if i.Process.PID == 0 && i.Damage == "" {
		starters, err := at.Starters()
		if err == nil && len(starters) == 0 {
			err = at.Unrecorded()
		}
		if err != nil {
			return at, i, false, err
		}
	}
	return at, i, running, nil
}

// damaged returns the error about a cluster that runs, but whose state file is damaged, or nil.
func damaged(p local.Profile, i local.Instance) error {
	if i.Damage == "" {
		return nil
	}
	return fmt.Errorf("cluster %s runs as process %d, but its state file %s; `sampan down%s` stops it with its pods, and `sampan up%[4]s` then starts it with the same data", p.Name, i.Process.PID, i.Damage, p.NameFlag())
}

// flag returns a global flag's value, or "" where the root has no such flag.
func flag(cmd *cobra.Command, name string) string {
	if f := cmd.Flag(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// hint returns a command line to suggest for the same cluster.
func hint(cmd *cobra.Command, verb string) string {
	words := []string{"sampan", verb}
	for _, name := range []string{"name", "data-dir"} {
		if f := cmd.Flag(name); f != nil && f.Changed {
			words = append(words, "--"+name+"="+f.Value.String())
		}
	}
	return "`" + strings.Join(words, " ") + "`"
}

// settingsFlags adds the flags of a cluster's settings.
func settingsFlags(cmd *cobra.Command, s *local.Settings) {
	f := cmd.Flags()
	f.IntVar(&s.APIPort, "api-port", 0, "port of the API server on 127.0.0.1 (default 6443, or a free port if it is in use)")
	f.StringVar(&s.AdvertiseAddress, "advertise-address", "", "address of this host at which other machines reach the API server and this node, so that they can join, or one of each IP family separated by a comma; \"none\" takes it back (default: none)")
	f.IntVar(&s.SimulatedNodes, "simulated-nodes", 0, "number of simulated nodes, without containers, to run instead of a real node; needs no root")
	f.Var(pathFlag{to: &s.SimulatedNodeFile}, "simulated-node-file", "file with a SimulatedNodes object, which describes the simulated nodes and the lives of their pods; read at each start")
	f.StringVar(&s.NodeName, "node-name", "", "name of the node (default: the name of this host)")
	f.Var(&s.Controllers, "controllers", "controllers to run, in kube-controller-manager's format: NAME, * for all, -NAME for all except that one (default *); -scheduler disables the scheduler")
	f.Var(pathFlag{to: &s.SchedulerConfig, none: local.NoSchedulerConfig}, "scheduler-config", "file with a KubeSchedulerConfiguration for the cluster's scheduler, read at each start; \"none\" restores the default")
	containerFlags(f, s)
	f.Var(pathFlag{to: &s.KubeletConfig, none: local.NoKubeletConfig}, "kubelet-config", "file with a KubeletConfiguration for the node, read at each start; \"none\" restores the default")
	f.Var(pairFlag{&s.Pods}, "pod-network", "pod network, or one for each IP family separated by a comma, the primary one first (default: an IPv4 network that no route of this host overlaps)")
	f.IntVar(&s.NodeMaskSize, "node-cidr-mask-size", 0, "length of the prefix of each node's part of an IPv4 --pod-network (default: 24, or less if maxPods of --kubelet-config needs more addresses)")
	f.Var(pairFlag{&s.Services}, "service-network", "service network, or one for each IP family of --pod-network (default: one that no route of this host overlaps)")
	f.StringVar((*string)(&s.IPFamily), "ip-family", "", "IP families of the default networks: ipv4, ipv6 or dual (default ipv4)")
	f.StringVar(&s.LoadBalancerAddresses, "load-balancer-addresses", "", "comma-separated ranges and prefixes of addresses for Services of type LoadBalancer, such as 192.0.2.10-192.0.2.20,2001:db8::/120, or none (default none)")
	f.StringVar((*string)(&s.ProxyMode), "proxy-mode", "", "default proxy mode of Services: kernel or userspace (default kernel)")
	f.Var(ttlFlag{&s.EventTTL}, "event-ttl", "how long Events are kept after their last update (default 1h0m0s)")
	f.StringVar(&s.Snapshots.Every, "snapshot-every", "", "how often the cluster saves a snapshot by itself, such as 6h; \"none\" takes it back (default none)")
	f.Var(countFlag{&s.Snapshots.Keep}, "snapshot-keep", "number of snapshots of --snapshot-every that are kept (default 5)")
	f.Var(dirFlag{&s.Snapshots.Dir}, "snapshot-dir", "directory of the cluster's snapshots, of --snapshot-every and of snapshot save without FILE; it is made if there is none; \"none\" takes it back (default: snapshots in the data directory)")
	f.StringVar(&s.Expiry.After, "expires", "", "time from this start after which the cluster ends by itself and is removed with its data, such as 1h; \"none\" takes it back (default none)")
	f.StringVar(&s.History.Keep, "history", "", "for how long superseded states of objects are kept on disk, such as 24h, for `sampan history`, `diff` and `get --at`; \"none\" removes what is kept (default none)")
	f.StringVar(&s.History.Max, "history-max", "", "size of the files of --history: the oldest ones are removed (default 1Gi)")
	authenticationFlags(f, &s.Authentication)
	imageFlags(f, &s.Images)
	f.StringVar(&s.Profiling, "profiling", "", "serve /debug/pprof of the API server to administrators: true or false (default true)")
	f.Lookup("profiling").NoOptDefVal = "true"
	f.StringVar((*string)(&s.RequestLog), "request-log", "", "requests that the API server logs: none, errors, writes or all (default none)")
	f.StringVar(&s.ClusterDomain, "cluster-domain", "", "DNS domain of the cluster (default cluster.local)")
	f.StringVar(&s.DNSListen, "cluster-dns-listen", "", "listen address of cluster DNS, or none (default: the address of the pods' bridge; none with simulated nodes)")
	f.Var(pathFlag{to: &s.StaticPodPath, none: local.NoStaticPodPath}, "static-pod-path", "`directory` with manifests of pods that the node runs without the API server; \"none\" takes it back")
	f.StringVar(&s.DNSUpstream, "cluster-dns-upstream", "", "comma-separated name servers for names outside the cluster, or none (default: those of this host)")
	for _, flag := range local.AllServerFlags() {
		f.VarPF(serverFlag{flag, &s.Server}, flag.Name, "", flag.Usage).NoOptDefVal = flag.Alone()
	}
}

// containerFlags adds the flags of what runs the containers of a node and what connects its pods.
func containerFlags(f *pflag.FlagSet, s *local.Settings) {
	f.StringVar(&s.CNIConfDir, "cni-conf-dir", "", "directory with the configuration of CNI plug-ins, such as /etc/cni/net.d, which then connect the pods; \"none\" restores the built-in network")
	f.StringVar(&s.CNIBinDir, "cni-bin-dir", "", "comma-separated directories with the programs of CNI plug-ins (default "+local.DefaultCNIBinDir+")")
	f.StringVar(&s.RuntimeEndpoint, "container-runtime-endpoint", "", "unix socket of another container runtime (CRI), such as unix:///run/containerd/containerd.sock; its CNI configuration connects the pods; \"none\" restores Sampan's own")
	f.StringVar(&s.ProxyHealth, "healthz-bind-address", "", "address of /healthz and /livez of the node's service proxy, for load balancers, or none (default "+local.DefaultProxyHealth+")")
	f.StringVar(&s.ProxyMetrics, "metrics-bind-address", "", "address of /metrics and /proxyMode of the node's service proxy, or none (default "+local.DefaultProxyMetrics+")")
}

// imageFlags adds the flags of where a node gets images from.
func imageFlags(f *pflag.FlagSet, s *local.ImageSettings) {
	f.Var(dirsFlag{&s.Registries}, "registries", "comma-separated directories with the configuration of registries, HOST/hosts.toml as for containerd, read at each pull; \"none\" restores the default (default DATA/registries,/etc/sampan/certs.d,/etc/containerd/certs.d)")
	f.Var(pathFlag{to: &s.CredentialConfig, none: local.NoImageSetting}, "image-credential-provider-config", "file or directory with the CredentialProviderConfig of credential provider plug-ins for images, read at each start; \"none\" removes it")
	f.Var(pathFlag{to: &s.CredentialPrograms, none: local.NoImageSetting}, "image-credential-provider-bin-dir", "`directory` of the programs of credential provider plug-ins; \"none\" removes it")
}

// serverFlag reads a flag of the API server.
type serverFlag struct {
	local.ServerFlag
	to *local.ServerFlags
}

func (f serverFlag) String() string {
	if f.to != nil {
		if value := f.to.Get(f.Name); value != "" {
			return value
		}
	}
	return f.Default
}

func (f serverFlag) Set(text string) error {
	value, err := f.Parse(text)
	if err == nil {
		f.to.Set(f.Name, value)
	}
	return err
}

func (f serverFlag) Type() string { return string(f.Kind) }

// settingsArgs is the opposite: the arguments that make the flags what s is.
func settingsArgs(s local.Settings) []string {
	var args []string
	add := func(name string, value any) { args = append(args, fmt.Sprintf("--%s=%v", name, value)) }
	if s.APIPort != 0 {
		add("api-port", s.APIPort)
	}
	if s.SimulatedNodes != 0 {
		add("simulated-nodes", s.SimulatedNodes)
	}
	if s.SimulatedNodeFile != "" {
		add("simulated-node-file", s.SimulatedNodeFile)
	}
	if s.NodeName != "" {
		add("node-name", s.NodeName)
	}
	if s.Controllers != "" {
		add("controllers", s.Controllers)
	}
	if s.SchedulerConfig != "" {
		add("scheduler-config", s.SchedulerConfig)
	}
	if s.StaticPodPath != "" {
		add("static-pod-path", s.StaticPodPath)
	}
	if s.EventTTL != 0 {
		add("event-ttl", s.EventTTL)
	}
	if s.Snapshots.Keep != 0 {
		add("snapshot-keep", s.Snapshots.Keep)
	}
	if s.Pods.IsValid() {
		add("pod-network", s.Pods)
	}
	if s.Services.IsValid() {
		add("service-network", s.Services)
	}
	if s.NodeMaskSize != 0 {
		add("node-cidr-mask-size", s.NodeMaskSize)
	}
	for name, value := range map[string]string{"ip-family": string(s.IPFamily), "proxy-mode": string(s.ProxyMode), "cluster-domain": s.ClusterDomain, "cluster-dns-listen": s.DNSListen, "cluster-dns-upstream": s.DNSUpstream, "profiling": s.Profiling, "request-log": string(s.RequestLog), "load-balancer-addresses": s.LoadBalancerAddresses, "healthz-bind-address": s.ProxyHealth, "metrics-bind-address": s.ProxyMetrics, "registries": s.Images.Registries, "image-credential-provider-config": s.Images.CredentialConfig, "image-credential-provider-bin-dir": s.Images.CredentialPrograms, "container-runtime-endpoint": s.RuntimeEndpoint, "cni-conf-dir": s.CNIConfDir, "cni-bin-dir": s.CNIBinDir, "kubelet-config": s.KubeletConfig, "advertise-address": s.AdvertiseAddress, "snapshot-every": s.Snapshots.Every, "snapshot-dir": s.Snapshots.Dir, "expires": s.Expiry.After, "history": s.History.Keep, "history-max": s.History.Max} {
		if value != "" {
			add(name, value)
		}
	}
	return slices.Concat(args, s.Server.Args(), authenticationArgs(s.Authentication))
}

// pathFlag reads the path of a file, which stays the same file wherever the program is
// started; or a word that stands for none.
type pathFlag struct {
	to   *string
	none string // the word, if there is one
}

func (p pathFlag) String() string {
	if p.to == nil {
		return ""
	}
	return *p.to
}

func (pathFlag) Type() string { return "file" }

func (p pathFlag) Set(text string) error {
	switch text {
	case "":
		return errors.New("must be the path of a file")
	case p.none:
		*p.to = text
		return nil
	}
	path, err := filepath.Abs(text)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	*p.to = path
	return nil
}

// dirFlag reads the path of a directory, which is made when it is needed, or local.NoSnapshots.
type dirFlag struct{ to *string }

func (d dirFlag) String() string {
	if d.to == nil {
		return ""
	}
	return *d.to
}

func (dirFlag) Type() string { return "directory" }

func (d dirFlag) Set(text string) (err error) {
	switch text {
	case "":
		return errors.New("must be the path of a directory")
	case local.NoSnapshots:
		*d.to = text
		return nil
	}
	if *d.to, err = filepath.Abs(text); err != nil {
		return err
	}
	if info, err := os.Stat(*d.to); err == nil && !info.IsDir() {
		return errors.New("must be a directory, or a path at which there is nothing yet")
	}
	return nil
}

// countFlag reads a number that is at least 1.
type countFlag struct{ to *int }

func (c countFlag) String() string {
	if c.to == nil || *c.to == 0 {
		return ""
	}
	return strconv.Itoa(*c.to)
}

func (countFlag) Type() string { return "int" }

func (c countFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("must be a number >= 1")
	}
	*c.to = n
	return nil
}

// dirsFlag reads absolute paths of directories that exist, separated by commas, or local.NoImageSetting.
type dirsFlag struct{ to *string }

func (d dirsFlag) String() string {
	if d.to == nil {
		return ""
	}
	return *d.to
}

func (dirsFlag) Type() string { return "directories" }

func (d dirsFlag) Set(text string) error {
	for dir := range strings.SplitSeq(text, ",") {
		info, err := os.Stat(dir)
		switch {
		case text == local.NoImageSetting, !filepath.IsAbs(dir): // a relative path is an error of the settings
		case err != nil:
			return fmt.Errorf("must be directories, separated by commas, or %s: %w", local.NoImageSetting, err)
		case !info.IsDir():
			return fmt.Errorf("must be directories, separated by commas, or %s: %s is not a directory", local.NoImageSetting, dir)
		}
	}
	*d.to = text
	return nil
}

// ttlFlag reads how long something is kept.
type ttlFlag struct{ to *local.Duration }

func (t ttlFlag) String() string {
	if t.to == nil || *t.to == 0 {
		return ""
	}
	return t.to.String()
}

func (t ttlFlag) Set(text string) error {
	var d local.Duration
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return err
	}
	if d < local.Duration(time.Second) {
		return errors.New("must be >= 1s")
	}
	*t.to = d
	return nil
}

func (ttlFlag) Type() string { return "duration" }

// pairFlag reads networks in CIDR notation.
type pairFlag struct{ to *local.Pair }

func (p pairFlag) String() string {
	if p.to == nil {
		return ""
	}
	return p.to.String()
}

func (p pairFlag) Set(text string) (err error) {
	*p.to, err = local.ParsePair(text)
	return err
}

func (pairFlag) Type() string { return "network" }
