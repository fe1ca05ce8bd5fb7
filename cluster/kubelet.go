package cluster

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"

	"github.com/sampan-io/sampan/apiserver/zpages"
	"github.com/sampan-io/sampan/internal/oomscore"
	"github.com/sampan-io/sampan/node"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/server"
)

// loadKubeletConfig reads the configuration of the node agent.
func (c *cluster) loadKubeletConfig() error {
	c.kubelet = kubeletconfig.Default()
	path := c.Settings.KubeletConfig
	if path == "" {
		return nil
	}
	var err error
	if c.kubelet, err = kubeletconfig.Load(path); err != nil {
		return fmt.Errorf("--kubelet-config: %w", err)
	}
	if d := strings.TrimSuffix(c.kubelet.ClusterDomain, "."); d != "" && d != c.domain() {
		return fmt.Errorf("--kubelet-config: %s: clusterDomain is %q, but the domain of the cluster is %q; pass --cluster-domain", path, d, c.domain())
	}
	if c.kubelet.Has("containerRuntimeEndpoint") && c.kubelet.ContainerRuntimeEndpoint != c.Settings.RuntimeEndpoint {
		return fmt.Errorf("--kubelet-config: %s: containerRuntimeEndpoint is %q; pass it with --container-runtime-endpoint, or remove the field", path, c.kubelet.ContainerRuntimeEndpoint)
	}
	for _, w := range c.kubelet.Warnings {
		c.Log.Warn("kubelet configuration: "+w, "file", path)
	}
	return nil
}

// logFlags are the flags of Sampan's runtime about the logs of containers.
func (c *cluster) logFlags() []string {
	if !c.kubelet.Has("containerLogMaxSize") && !c.kubelet.Has("containerLogMaxFiles") {
		return nil
	}
	size, files := c.kubelet.LogLimits()
	return []string{"--container-log-max-size=" + strconv.FormatInt(size, 10), "--container-log-max-files=" + strconv.Itoa(files)}
}

// zPages adds the pages about the node agent to its API.
func (c *cluster) zPages(o *node.Options) {
	version := strings.TrimPrefix(KubernetesVersion, "v")
	page := zpages.Component{
		Name: "kubelet", Started: c.started, GoVersion: runtime.Version(), BinaryVersion: version,
		EmulationVersion: version[:strings.LastIndexByte(version, '.')], Paths: server.Paths, Flags: c.Flags,
	}
	if o.Handlers == nil {
		o.Handlers = map[string]http.Handler{}
	}
	o.Handlers["GET /statusz"], o.Handlers["GET /flagz"] = page.Statusz(), page.Flagz()
}

// protect has the kernel kill containers before this process when memory runs out, until the result is called: as kubelet
// does, by its oomScoreAdj. Simulated nodes have no containers.
func (c *cluster) protect() (restore func()) {
	if c.kubelet == nil || c.kubelet.OOMScoreAdj == nil {
		return func() {}
	}
	return oomscore.Protect(int(*c.kubelet.OOMScoreAdj))
}
