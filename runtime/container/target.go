package container

import (
	"fmt"
	"os"
	"strconv"
)

// joinPIDs makes the container of spec share the PID namespace of its target ([Spec.PIDsOf]), if it has one. The
// namespace is held by a descriptor, so that it cannot be mistaken for that of a later process, until the caller has
// started the container and calls the returned function.
func (k *Supervisor) joinPIDs(spec *Spec) (release func(), err error) {
	if spec.PIDsOf == "" {
		return func() {}, nil
	}
	target, err := k.running(spec.PIDsOf)
	if err != nil {
		return nil, fmt.Errorf("process namespace of another container: %w", err)
	}
	ns, err := os.Open("/proc/" + strconv.Itoa(target.Pid) + "/ns/pid")
	if err != nil {
		return nil, fmt.Errorf("process namespace of container %s: %w", target.ID, err)
	}
	if start, err := processStart(target.Pid); err != nil || start != target.PidStart {
		_ = ns.Close()
		return nil, fmt.Errorf("process namespace of container %s: %w", target.ID, errGone)
	}
	// libcontainer's child opens it by this name.
	spec.PIDNS = "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(ns.Fd()))
	return func() { _ = ns.Close() }, nil
}
