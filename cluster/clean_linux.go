//go:build !portable

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/node/routes"
	"github.com/sampan-io/sampan/node/volumes"
	"github.com/sampan-io/sampan/proxy/announce"
	"github.com/sampan-io/sampan/proxy/nft"
	"github.com/sampan-io/sampan/proxy/userspace"
)

// Clean removes the kernel state of a cluster's processes: the rules of
// the service proxy, the addresses of load balancers and, through the runtime's own program, containers, mounts,
// links and cgroups. The processes must have ended. It is idempotent. runtime is that of [Options]: it is called if the runtime's own
// program does not exist any more.
func Clean(ctx context.Context, p local.Profile, i local.Instance, runtime func(dir string) (string, error)) error {
	if i.Simulated {
		return nil
	}
	var all []netip.Prefix
	if n, err := local.ParsePair(i.Runtime.PodNetwork); err == nil {
		all = n.All()
	}
	err := errors.Join(routes.Remove(all), nft.Remove(p.ServiceTable()), announce.Remove(p.BalancerLink()), userspace.RemoveTransparent(p.RelayTable()), volumes.Clean(p.AgentRoot()))
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
	return errors.Join(err, cleanContainers(ctx, i.Runtime.Program, args, runtime))
}

// cleanContainers runs the program of a container runtime, which may have been removed with the data directory: then another one of the
// same kind, which unpack puts into a directory, does as well.
func cleanContainers(ctx context.Context, program string, args []string, unpack func(dir string) (string, error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("removing the leftovers of the containers: %w", err)
		}
	}()
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		dir, err := os.MkdirTemp("", "sampan-clean-")
		if err != nil {
			return fmt.Errorf("%s does not exist, and a directory for another one cannot be made: %w", program, err)
		}
		defer os.RemoveAll(dir)
		own, err := unpack(dir)
		if err != nil {
			return fmt.Errorf("%s does not exist: %w", program, err)
		}
		program = own
	}
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if text := bytes.TrimSpace(out); err != nil && len(text) > 0 {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}
