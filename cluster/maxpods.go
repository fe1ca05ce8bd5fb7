package cluster

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/store"
)

// maxPods returns how many pods the node of this host runs at most, or 0 for that of its configuration. Without addresses
// pods would wait without end, so the node takes as many as its part of the pod network has addresses for, and the scheduler
// leaves the others pending. Other container runtimes and CNI plug-ins choose addresses in their own way.
func (c *cluster) maxPods() int {
	if c.foreign() || c.Settings.CNIConfDir != "" {
		return 0
	}
	wanted, room := c.kubelet.Pods(runtime.NumCPU()), local.PodRoom(c.networks)
	if wanted <= room {
		return 0
	}
	message := fmt.Sprintf("The node takes %d pods instead of %d (maxPods): its part of the pod network, %s, has no more addresses. A cluster that is made with this maxPods, or with --node-cidr-mask-size, has larger parts", room, wanted, joined(c.networks))
	c.notices.add(store.Notice{Warning: true, Reason: "PodNetworkTooSmall", Message: message})
	c.warnings.add(strings.Replace(message, "The node", "the node", 1))
	c.Log.Warn("the node takes fewer pods than maxPods: its part of the pod network has no more addresses; a cluster that is made with this maxPods, or with --node-cidr-mask-size, has larger parts",
		"maxPods", wanted, "pods", room, "network", joined(c.networks))
	return room
}
