package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/proxy/nft"
)

// Clean removes what the processes of a cluster left in the kernel: the rules of
// the service proxy and, through the runtime's own program, containers, mounts,
// links and cgroups. The processes must have ended. It is idempotent.
func Clean(ctx context.Context, p local.Profile, i local.Instance) error {
	if i.Simulated {
		return nil
	}
	err := errors.Join(nft.Remove(p.ServiceTable()), unmountBelow(filepath.Join(p.DataDir, "pods")))
	if i.Runtime.Program == "" {
		return err
	}
	pods := i.Runtime.PodNetwork
	if n, parseErr := netip.ParsePrefix(pods); parseErr == nil {
		pods = netip.PrefixFrom(n.Addr(), 24).String()
	}
	args := append([]string{"clean"}, runtimeFlags(p, pods, i.Runtime.ServiceNetwork)...)
	out, runErr := exec.CommandContext(ctx, i.Runtime.Program, args...).CombinedOutput()
	if errors.Is(runErr, os.ErrNotExist) {
		runErr = fmt.Errorf("%w; run `sampan up` once more and then `sampan down`", runErr)
	}
	if runErr != nil {
		runErr = fmt.Errorf("cleaning up after the containers: %w: %s", runErr, bytes.TrimSpace(out))
	}
	return errors.Join(err, runErr)
}

// unmountBelow unmounts what the node agent mounted for volumes in memory, the
// innermost first. What is still in use goes with its last user.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("reading the mounts: %w", err)
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}
