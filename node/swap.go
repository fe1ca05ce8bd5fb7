package node

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/podcgroup"
	"github.com/sampan-io/sampan/node/stats"
)

// openSwap reads how much swap the machine has, and how the swap of containers can be limited in cgroups below the one at the path
// root.
func (n *Node) openSwap(root string) {
	swap := crispec.Swap{Total: int64(stats.SwapTotal()), Limited: n.config().MemorySwap.SwapBehavior == kubeletconfig.LimitedSwap}
	switch {
	case !podcgroup.LimitsSwap(root):
	case podcgroup.Unified():
		swap.Limit = crispec.SwapAlone
	default:
		swap.Limit = crispec.SwapWithMemory
	}
	switch {
	case !swap.Limited:
	case swap.Limit == crispec.SwapUnlimited:
		n.log.Warn("swapBehavior LimitedSwap has no effect: the kernel does not account for the swap of cgroups")
	case swap.Limit == crispec.SwapWithMemory:
		n.log.Info("swapBehavior LimitedSwap with cgroup v1: the swap of containers without a memory limit is not limited")
	}
	n.machine.swap = swap
}

// checkSwap returns an error if swap is on and the configuration forbids that.
func (n *Node) checkSwap() error {
	if n.opts.RootDir == "" || !*n.config().FailSwapOn {
		return nil
	}
	list, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without swap
	}
	if err != nil {
		return fmt.Errorf("failed to determine if swap is on: %w", err)
	}
	if swapOn(string(list)) {
		return errors.New("running with swap on is not supported, please disable swap or set failSwapOn of the kubelet configuration to false")
	}
	return nil
}

// swapOn reports whether there is swap, from /proc/swaps: it has one line for each in use, after a headline.
func swapOn(swaps string) bool { return strings.Count(strings.TrimSpace(swaps), "\n") > 0 }
