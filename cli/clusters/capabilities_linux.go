//go:build !portable

package clusters

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/runtime/network"
)

// A need is a capability without which no container can be run.
type need struct {
	capability uint // its number, see capabilities(7)
	name       string
	what       string // what it is needed for
}

// needs returns what no container can do without; without others, only those
// containers fail that use them.
func needs() []need {
	return []need{
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "mounts and namespaces"},
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "network interfaces and rules"},
		{unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT", "entering mount namespaces"},
		{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "finding the namespaces of containers"},
		{unix.CAP_SETUID, "CAP_SETUID", "users of containers"},
		{unix.CAP_SETGID, "CAP_SETGID", "groups of containers"},
		{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "cgroups"},
	}
}

// checkSurroundings reports a real node's missing capabilities, before anything is changed. That
// the kernel lacks something is found out by the container runtime. instead is what the user can do instead, such as
// [simulate], or "".
func checkSurroundings(s local.Settings, instead string) error {
	if s.Simulated() {
		return nil
	}
	if instead != "" {
		instead = ", or use " + instead
	}
	if os.Getuid() != 0 {
		return fmt.Errorf("a real node needs root, because it creates network interfaces, mounts and cgroups for the containers; use sudo%s", instead)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData // 32 bits each
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("reading the capabilities of this process: %w", err)
	}
	var lacking []string
	for _, n := range needs() {
		if have[n.capability/32].Effective&(1<<(n.capability%32)) == 0 {
			lacking = append(lacking, n.name+" (for "+n.what+")")
		}
	}
	if len(lacking) == 0 {
		if s.Pods.Family() == local.IPv4 {
			return nil
		}
		return network.IPv6()
	}
	return fmt.Errorf("a real node needs the capability %s, which root does not have here; run the surrounding container with --privileged%s", strings.Join(lacking, " and "), instead)
}
