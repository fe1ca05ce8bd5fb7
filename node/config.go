package node

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/eviction"
	"github.com/sampan-io/sampan/node/images"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/pullrecord"
)

// configured returns the options with the values of the configuration file that they do not set themselves.
func (o Options) configured() Options {
	c := o.Config
	if c == nil {
		return o
	}
	c = o.onDisk(c)
	o.Config = c
	o.MaxPods = cmp.Or(o.MaxPods, c.Pods(runtime.NumCPU()))
	if len(o.ClusterDNS) == 0 || c.Has("clusterDNS") {
		o.ClusterDNS = c.ClusterDNS
	}
	o.ClusterDomain = cmp.Or(o.ClusterDomain, c.ClusterDomain)
	if o.ResolvConf == "" && c.Has("resolvConf") {
		o.ResolvConf = *c.ResolverConfig
	}
	if o.Taints == nil {
		o.Taints = c.RegisterWithTaints
	}
	if o.StaticPodPath == "" {
		o.StaticPodPath = c.StaticPodPath
	}
	o.Seccomp.Default = o.Seccomp.Default || *c.SeccompDefault
	o.AllowedUnsafeSysctls = append(o.AllowedUnsafeSysctls, c.AllowedUnsafeSysctls...)
	o.Images = configuredImages(o.Images, c)
	if o.Owner != "" && !c.Has("imageGCHighThresholdPercent") {
		o.Images.Collect.HighPercent = 100 // images are also those of others
	}
	return o
}

// onDisk returns the configuration for the disk of the node, if that has the images as well.
func (o Options) onDisk(c *kubeletconfig.Config) *kubeletconfig.Config {
	var disk unix.Statfs_t
	if o.RootDir == "" || o.Owner != "" || statfs(o.RootDir, &disk) != nil {
		return c
	}
	return c.OnDisk(int64(disk.Blocks * uint64(disk.Bsize)))
}

// configuredImages fills in what the configuration says of images.
func configuredImages(o images.Options, c *kubeletconfig.Config) images.Options {
	switch {
	case o.ParallelPulls != 0:
	case c.MaxParallelImagePulls != nil:
		o.ParallelPulls = int(*c.MaxParallelImagePulls)
	case c.Has("serializeImagePulls") && *c.SerializeImagePulls:
		o.ParallelPulls = 1
	}
	if o.Verification == "" {
		o.Verification, o.Allowed = pullrecord.Policy(c.ImagePullCredentialsVerificationPolicy), c.PreloadedImagesVerificationAllowlist
	}
	if o.Collect == (images.CollectOptions{}) {
		o.Collect = images.CollectOptions{
			HighPercent: int(*c.ImageGCHighThresholdPercent), LowPercent: int(*c.ImageGCLowThresholdPercent),
			MinAge: c.ImageMinimumGCAge.Duration, MaxAge: c.ImageMaximumGCAge.Duration,
		}
	}
	return o
}

// thresholds returns at what amounts of free resources pods are evicted.
func (o Options) thresholds() eviction.Settings {
	c := o.Config
	if c == nil {
		c = o.onDisk(kubeletconfig.Default())
	}
	return eviction.Settings{Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGracePeriod: c.EvictionSoftGracePeriod, MinimumReclaim: c.EvictionMinimumReclaim}
}

// config returns the configuration of the node.
func (n *Node) config() *kubeletconfig.Config { return n.opts.settings }

// reported returns the configuration as /configz shows it: with the values in use.
func (n *Node) reported() kubeletconfig.Config {
	c := *n.config()
	c.MaxPods = int32(n.opts.MaxPods)
	c.ClusterDNS, c.ClusterDomain = n.opts.ClusterDNS, n.opts.ClusterDomain
	if n.opts.ResolvConf != "" {
		c.ResolverConfig = &n.opts.ResolvConf
	}
	c.RegisterWithTaints = n.opts.Taints
	pulls := int32(n.opts.Images.ParallelPulls)
	serialize := pulls == 1
	c.MaxParallelImagePulls, c.SerializeImagePulls = &pulls, &serialize
	if !n.servesHealth() {
		c.HealthzPort = new(int32)
	}
	c.Port = n.port()
	if len(n.opts.Listeners) > 0 {
		if host, _, err := net.SplitHostPort(n.opts.Listeners[0].Addr().String()); err == nil {
			c.Address = host
		}
	}
	if n.opts.LogDir != "" {
		c.PodLogsDir = n.opts.LogDir
	}
	if s, ok := n.opts.Runtime.(interface{ Endpoint() string }); ok {
		c.ContainerRuntimeEndpoint = s.Endpoint()
	}
	return c
}

// port returns the port of the kubelet API, or 0 if it is not served.
func (n *Node) port() int32 {
	if len(n.opts.Listeners) == 0 {
		return 0
	}
	_, port, err := net.SplitHostPort(n.opts.Listeners[0].Addr().String())
	if err != nil {
		return 0
	}
	number, _ := strconv.ParseInt(port, 10, 32) // listeners have ports
	return int32(number)
}

// servesHealth reports whether the health check has a port of its own: if the configuration file names one.
func (n *Node) servesHealth() bool {
	c := n.config()
	return (c.Has("healthzPort") || c.Has("healthzBindAddress")) && *c.HealthzPort != 0
}

// healthLimit is how long reading or writing a health check may take.
const healthLimit = 10 * time.Second

// serveHealth serves /healthz on the port of the configuration file, to every client that can reach it, until ctx is over.
// A port in use is a warning: the same check is part of the kubelet API.
func (n *Node) serveHealth(ctx context.Context) error {
	c := n.config()
	at := net.JoinHostPort(c.HealthzBindAddress, strconv.Itoa(int(*c.HealthzPort)))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		n.log.Warn("the health check of the node is not served on a port of its own", "address", at, "err", err)
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	n.server.HealthRoutes(mux)
	server := &http.Server{Handler: mux, ReadTimeout: healthLimit, WriteTimeout: healthLimit, IdleTimeout: healthLimit}
	g := run.NewGroup(context.WithoutCancel(ctx), 0)
	g.Go(func(context.Context) { _ = server.Serve(l) })
	<-ctx.Done()
	_ = server.Close()
	g.Wait()
	return nil
}
