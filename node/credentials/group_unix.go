//go:build unix

package credentials

import (
	"os/exec"
	"syscall"
)

// endTogether has a command end together with all that it has started, when its context is cancelled.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
