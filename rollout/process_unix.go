//go:build unix

package rollout

import (
	"errors"
	"syscall"
)

// gone reports whether no process has the ID.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
