package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/removal"
	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/network"
)

// Clean removes everything that a dead server with these options has left, except
// for images (R4): processes, mounts, namespaces, links, the route, the nftables
// table, cgroups, state. It refuses while one is alive. A missing object is no
// error. After an error Clean goes on with the rest, and reports all errors.
func Clean(opts Options) error {
	opts, err := opts.check()
	if err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	if os.Geteuid() != 0 {
		return errors.New("cleaning up after a container runtime needs to be done as root")
	}
	net, err := network.New(network.Options{
		Bridge: opts.Bridge, PodCIDRs: opts.PodCIDRs, ServiceCIDRs: opts.ServiceCIDRs, Table: opts.Table, Log: opts.Log,
	})
	if err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	defer net.Close()
	if err := os.MkdirAll(opts.State, 0o711); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	lock, err := lockState(opts.State, nil)
	if err != nil {
		return err
	}
	defer lock.Close()

	var errs []error
	cgroups := cgroupsOf(opts)
	for _, c := range cgroups {
		errs = append(errs, container.KillCgroup(c))
	}
	s := &Server{opts: opts, network: net}
	errs = append(errs, mounts.DetachBelow(filepath.Join(opts.Root, "tmp")), mounts.DetachBelow(opts.State))
	for _, c := range cgroups {
		errs = append(errs, container.RemoveCgroup(c))
	}
	for _, dir := range []string{"tmp", "containers"} {
		errs = append(errs, removal.Tree(filepath.Join(opts.Root, dir)))
	}
	return errors.Join(append(errs, s.vanish())...)
}

// cgroupsOf lists the cgroups of a server: its root cgroup and, for pods with a
// cgroup parent elsewhere, the cgroups of their containers.
func cgroupsOf(opts Options) []string {
	found := container.CgroupPlaces(opts.Cgroup)
	files, _ := filepath.Glob(filepath.Join(opts.State, "containers", "*", "record.json"))
	for _, file := range files {
		var r container.Record
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &r) == nil && r.Spec.Cgroup != "" {
			found = append([]string{r.Spec.Cgroup}, found...)
		}
	}
	return found
}
