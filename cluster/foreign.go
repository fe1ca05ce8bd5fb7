package cluster

import "github.com/sampan-io/sampan/cluster/local"

// foreign reports whether the container runtime is another program than Sampan's, which others run and configure.
func (c *cluster) foreign() bool { return c.Settings.RuntimeEndpoint != "" }

// runtimeEndpoint returns where the container runtime of the node listens.
func (c *cluster) runtimeEndpoint() string {
	if c.foreign() {
		return c.Settings.RuntimeEndpoint
	}
	return c.Profile.RuntimeSocket()
}

// foreignRuntime is the record of such a runtime.
func (c *cluster) foreignRuntime() local.Runtime {
	return local.Runtime{
		Endpoint: c.Settings.RuntimeEndpoint, DataDir: c.Profile.DataDir,
		PodNetwork: c.Settings.Pods.String(), NodeNetwork: joined(c.networks), ServiceNetwork: c.Settings.Services.String(),
	}
}
