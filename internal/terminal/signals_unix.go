//go:build unix

package terminal

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// NotifyResized sends a signal to c when the size of the terminal changes, until signal.Stop is called for c.
func NotifyResized(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }

// NotifyContinued sends a signal to c when the process continues after it was stopped, until signal.Stop is called for c.
func NotifyContinued(c chan<- os.Signal) { signal.Notify(c, syscall.SIGCONT) }

// NotifyStopped sends a signal to c when the user wants to stop the process, until signal.Stop is called for c. From then on
// the process must stop itself with [Stop].
func NotifyStopped(c chan<- os.Signal) { signal.Notify(c, syscall.SIGTSTP) }

// Stop stops the process until it receives SIGCONT.
func Stop() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) } // a process may always stop itself

// Foreground reports whether this process may draw on the terminal f: it may not while it runs in the background.
func Foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == syscall.Getpgrp() // an error: it is not the controlling terminal
}
