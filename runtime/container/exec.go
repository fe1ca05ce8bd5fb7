package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// maxCapture is how much of each output an exec keeps; CRI sets it. The rest is
// read and thrown away.
const maxCapture = 16 << 20

// ErrTimeout is returned if a command was killed at its timeout.
var ErrTimeout = errors.New("the command timed out")

// An ExecResult is the output and the exit code of a command in a container.
type ExecResult struct {
	Stdout, Stderr []byte
	Code           int
}

// Exec runs a command in a running container, as the container's user and in its
// working directory, and waits for it. After the timeout (0 means never) or when ctx is
// cancelled, the command is killed and the error is [ErrTimeout] or that of ctx.
func (k *Supervisor) Exec(ctx context.Context, id string, args []string, timeout time.Duration) (ExecResult, error) {
	r, err := k.running(id)
	if err != nil {
		return ExecResult{}, err
	}
	if len(args) == 0 {
		return ExecResult{}, errors.New("command is empty")
	}
	var outs [2]capture
	ends := make([]*os.File, 0, len(outs))
	closeEnds := func() {
		for _, f := range ends {
			_ = f.Close()
		}
		ends = nil
	}
	defer closeEnds()
	for i := range outs {
		reader, writer, err := os.Pipe()
		if err != nil {
			return ExecResult{}, err
		}
		defer reader.Close()
		outs[i].from = reader
		ends = append(ends, writer)
	}
	proc := r.process(args)
	proc.Stdout, proc.Stderr = ends[0], ends[1]
	held, err := k.spawnIn(ctx, &r, proc)
	closeEnds()
	if err != nil {
		return ExecResult{}, err
	}
	defer held.file.Close()
	defer k.own(held.pid, false)

	readers := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer readers.Stop()
	for i := range outs {
		readers.Go(func(context.Context) { outs[i].read() })
	}
	code, known, waitErr := held.waitOrKill(ctx, timeout)
	// A process that the command left behind may keep the pipes open; its output is not
	// part of the answer.
	const linger = 500 * time.Millisecond
	for i := range outs {
		_ = outs[i].from.SetReadDeadline(time.Now().Add(linger))
	}
	readers.Wait()
	result := ExecResult{Stdout: outs[0].data, Stderr: outs[1].data, Code: code}
	switch {
	case waitErr != nil:
		return result, waitErr
	case !known:
		return result, fmt.Errorf("container %s: the exit code of %q is unknown", id, args[0])
	}
	return result, nil
}

// waitOrKill waits for the process. After the timeout (0 means never) or when ctx is cancelled, it kills the process, and
// returns [ErrTimeout] or the cause of ctx.
func (p *process) waitOrKill(ctx context.Context, timeout time.Duration) (code int, known bool, err error) {
	limited, cancel := ctx, func() {}
	if timeout > 0 {
		limited, cancel = context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	}
	defer cancel()
	if code, known, err = p.wait(limited); err == nil {
		return code, known, nil
	}
	err = context.Cause(limited)
	_ = p.file.SetReadDeadline(time.Time{})
	_ = p.signal(unix.SIGKILL)
	code, known, _ = p.wait(context.WithoutCancel(ctx))
	return code, known, err
}

// spawnIn starts a process in a container. It waits while many are being started.
func (k *Supervisor) spawnIn(ctx context.Context, r *Record, proc *libcontainer.Process) (*process, error) {
	if proc.Cwd == "" {
		proc.Cwd = "/"
	}
	select {
	case k.spawns <- struct{}{}:
		defer func() { <-k.spawns }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	k.spawn.RLock()
	defer k.spawn.RUnlock()
	if err := r.ownPipes(proc); err != nil {
		return nil, err
	}
	lc, err := libcontainer.Load(k.libDir(), r.ID)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", r.ID, err)
	}
	if err := lc.Start(proc); err != nil {
		return nil, fmt.Errorf("OCI runtime exec failed: exec failed: %w", err) // as runc words it, for people who search for it
	}
	pid, err := proc.Pid()
	if err != nil {
		return nil, err
	}
	k.own(pid, true)
	start, err := processStart(pid)
	if err == nil {
		var held *process
		if held, err = holdProcess(pid, start); err == nil {
			return held, nil
		}
	}
	k.own(pid, false)
	_ = unix.Kill(pid, unix.SIGKILL)
	_, _ = proc.Wait()
	return nil, err
}

// capture keeps the beginning of the data that is written to a pipe.
type capture struct {
	from *os.File
	data []byte
}

func (c *capture) read() {
	c.data, _ = io.ReadAll(io.LimitReader(c.from, maxCapture))
	_, _ = io.Copy(io.Discard, c.from)
}

// ownPipes gives the pipes of a command to the root user of the container's user namespace: otherwise no user in there owns
// them, and a program cannot open /dev/stdout.
func (r *Record) ownPipes(proc *libcontainer.Process) error {
	if r.Spec.UserNS == "" {
		return nil
	}
	for _, end := range []any{proc.Stdin, proc.Stdout, proc.Stderr} {
		if f, ok := end.(*os.File); ok && f != nil {
			if err := f.Chown(int(r.Spec.Users.Host), int(r.Spec.Users.Host)); err != nil {
				return err
			}
		}
	}
	return nil
}
