//go:build !linux || portable

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// exitPoll is how often the end of a process is looked for: unlike Linux, other systems have no descriptors of processes.
const exitPoll = 50 * time.Millisecond

// End sends SIGTERM to a process and blocks until it has exited. After patience it sends
// SIGKILL; it returns early when ctx is cancelled. A process that does not exist is not
// an error.
func End(ctx context.Context, p Process, patience time.Duration) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !p.there() {
			return nil
		}
		found, err := os.FindProcess(p.PID)
		if err == nil {
			err = found.Signal(sig)
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stopping process %d: %w", p.PID, err)
		}
		gone, err := p.awaitExit(ctx, patience)
		if gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d does not exit after SIGKILL", p.PID)
}

// Wait blocks until the process is gone with all that it held, and returns nil, or until ctx is over, and
// returns its cause.
func (p Process) Wait(ctx context.Context) error {
	_, err := p.awaitExit(ctx, -1)
	return err
}

// awaitExit blocks until the process is gone, or a zombie. A negative patience is without end.
func (p Process) awaitExit(ctx context.Context, patience time.Duration) (bool, error) {
	deadline := time.Now().Add(patience)
	for p.Alive() {
		if patience >= 0 && !time.Now().Before(deadline) {
			return false, nil
		}
		if !run.Pause(ctx, exitPoll) {
			return false, context.Cause(ctx)
		}
	}
	return true, nil
}
