package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/node"
	"github.com/sampan-io/sampan/node/routes"
	"github.com/sampan-io/sampan/proxy/announce"
	"github.com/sampan-io/sampan/proxy/nft"
	"github.com/sampan-io/sampan/proxy/userspace"
)

// Clean removes what the processes of a cluster left in the kernel: the rules of
// the service proxy, the addresses of load balancers and, through the runtime's own program, containers, mounts,
// links and cgroups. The processes must have ended. It is idempotent.
func Clean(ctx context.Context, p local.Profile, i local.Instance) error {
	if i.Simulated {
		return nil
	}
	var all []netip.Prefix
	if n, err := local.ParsePair(i.Runtime.PodNetwork); err == nil {
		all = n.All()
	}
	err := errors.Join(routes.Remove(all), nft.Remove(p.ServiceTable()), announce.Remove(p.BalancerLink()), userspace.RemoveTransparent(p.RelayTable()), node.Clean(p.AgentRoot()))
	if i.Runtime.Endpoint != "" {
		return errors.Join(err, cleanForeign(ctx, p, i.Runtime.Endpoint))
	}
	if i.Runtime.Program == "" {
		return err
	}
	pods := i.Runtime.NodeNetwork
	if n, parseErr := local.ParsePair(i.Runtime.PodNetwork); parseErr == nil && pods == "" { // an earlier version started it
		pods = joined(local.Settings{Networks: local.Networks{Pods: n}}.NodeNetworks(0))
	}
	args := append([]string{"clean"}, runtimeFlags(p, pods, i.Runtime.ServiceNetwork)...)
	out, runErr := exec.CommandContext(ctx, i.Runtime.Program, args...).CombinedOutput()
	if errors.Is(runErr, os.ErrNotExist) {
		runErr = fmt.Errorf("%w; run `sampan up` again and then `sampan down`", runErr)
	}
	if runErr != nil {
		runErr = fmt.Errorf("removing the leftovers of the containers: %w: %s", runErr, bytes.TrimSpace(out))
	}
	return errors.Join(err, runErr)
}
