package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/upgrade"
)

// ErrClientGone is the cause of a context that is cancelled because the client of a session or an attachment has
// disconnected. Any other cause means that the runtime stops.
var ErrClientGone = errors.New("the client has disconnected")

// A Session is a command in a container whose streams are connected to a client.
type Session struct {
	Args     []string
	Terminal bool        // the command gets a terminal, and Stdout all of its output
	Size     Size        // of the terminal at the start; zero means that it has none yet
	Resize   <-chan Size // later sizes; nil or closed means none

	Stdin          io.Reader // nil means /dev/null. It is read until its end, even after RunSession has returned
	Stdout, Stderr io.Writer // nil means that the output is thrown away
}

// maxSpawns is how many commands are being started in containers at the same time. A start takes processor time and,
// for a moment, the memory of a Go program; more at once are not faster.
const maxSpawns = 16

// RunSession runs a command in a running container, as the container's user and in its working directory. It returns the
// exit code when the command has ended and all output was written: output of processes that it left behind counts.
//
// If ctx is cancelled, RunSession returns the cause at once and does not kill the command, as in containerd: the
// command reads the end of its standard input, gets SIGPIPE when it writes, and SIGHUP if it has a terminal.
func (k *Supervisor) RunSession(ctx context.Context, id string, s Session) (int, error) {
	r, err := k.running(id)
	if err != nil {
		return 0, err
	}
	if len(s.Args) == 0 {
		return 0, errors.New("command is empty")
	}
	proc := r.process(s.Args)
	ends, err := s.connect(proc)
	if err != nil {
		return 0, err
	}
	defer ends.close()
	held, err := k.spawnIn(ctx, &r, proc)
	if err != nil {
		return 0, err
	}
	defer k.leave(held)
	if err := ends.started(); err != nil {
		_ = held.signal(unix.SIGKILL)
		return 0, err
	}
	if s.Stdin != nil {
		k.background(func(context.Context) { ends.feed(s.Stdin, k.pool) })
	}
	defer context.AfterFunc(ctx, ends.close)()
	control, outputs := run.NewGroup(ctx, 0), run.NewGroup(ctx, 0)
	defer control.Stop()
	defer outputs.Wait()
	if ends.terminal != nil {
		control.Go(func(ctx context.Context) { resize(ctx, ends.terminal, s.Resize) })
	}
	for _, o := range ends.outputs {
		outputs.Go(func(context.Context) { k.copyOutput(o.to, o.from) })
	}
	code, known, err := held.wait(ctx)
	if err != nil {
		return 0, context.Cause(ctx)
	}
	outputs.Wait()
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case !known:
		return 0, fmt.Errorf("container %s: the exit code of %q is unknown", id, s.Args[0])
	}
	return code, nil
}

// running returns the record of a container that runs.
func (k *Supervisor) running(id string) (Record, error) {
	e, err := k.get(id)
	if err != nil {
		return Record{}, err
	}
	r := e.snapshot()
	if r.State() != Running {
		return Record{}, fmt.Errorf("container %s is not running: %w", id, ErrState)
	}
	return r, nil
}

// process returns a command that is to be executed in the container.
func (r *Record) process(args []string) *libcontainer.Process {
	return &libcontainer.Process{
		Args: args, Env: r.Spec.Env, Cwd: r.Spec.Cwd,
		UID: int(r.Spec.User.UID), GID: int(r.Spec.User.GID), AdditionalGroups: ints(r.Spec.User.Groups),
	}
}

// background runs f in the group of the supervisor, which waits for it at its end.
func (k *Supervisor) background(f func(context.Context)) bool {
	k.mu.Lock()
	group := k.group
	k.mu.Unlock()
	return group.Go(f)
}

// leave gives up a process without waiting for its end; the supervisor reaps it.
func (k *Supervisor) leave(p *process) {
	k.own(p.pid, false)
	_ = p.control(func(fd int) { _ = unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG, nil) })
	_ = p.file.Close()
}

// sessionEnds are the descriptors of a session.
type sessionEnds struct {
	console  *console   // nil without a terminal
	theirs   []*os.File // those of the command, until it is started
	terminal *os.File
	stdin    *os.File
	outputs  []sessionOutput
}

type sessionOutput struct {
	from *os.File
	to   io.Writer
}

// connect makes the pipes, or the terminal, of a session.
func (s *Session) connect(proc *libcontainer.Process) (*sessionEnds, error) {
	ends := &sessionEnds{}
	if s.Terminal {
		c, err := newConsole()
		if err != nil {
			return nil, err
		}
		ends.console, proc.ConsoleSocket = c, c.theirs
		proc.ConsoleWidth, proc.ConsoleHeight = s.Size.Width, s.Size.Height
		proc.Env = withTerm(proc.Env)
		ends.outputs = []sessionOutput{{to: s.Stdout}}
		return ends, nil
	}
	fail := func(err error) (*sessionEnds, error) {
		ends.close()
		return nil, err
	}
	if s.Stdin != nil {
		r, w, err := widePipe()
		if err != nil {
			return fail(err)
		}
		ends.stdin, ends.theirs, proc.Stdin = w, append(ends.theirs, r), r
	}
	for _, o := range []struct {
		to  io.Writer
		set *io.Writer
	}{{s.Stdout, &proc.Stdout}, {s.Stderr, &proc.Stderr}} {
		r, w, err := widePipe()
		if err != nil {
			return fail(err)
		}
		ends.outputs, ends.theirs, *o.set = append(ends.outputs, sessionOutput{from: r, to: o.to}), append(ends.theirs, w), w
	}
	return ends, nil
}

// withTerm sets the kind of the terminal, as other runtimes do.
func withTerm(env []string) []string {
	out := make([]string, 0, len(env)+1)
	for _, e := range env {
		if !strings.HasPrefix(e, "TERM=") {
			out = append(out, e)
		}
	}
	return append(out, "TERM=xterm")
}

// started closes the ends of the command, which has its own copies now, and takes its terminal.
func (e *sessionEnds) started() error {
	for _, f := range e.theirs {
		_ = f.Close()
	}
	e.theirs = nil
	if e.console == nil {
		return nil
	}
	defer func() { e.console.close(); e.console = nil }()
	terminal, err := e.console.receive()
	if err != nil {
		return err
	}
	e.terminal, e.stdin, e.outputs[0].from = terminal, terminal, terminal
	return nil
}

// close closes everything. It may be called more than once, and while the descriptors are in use.
func (e *sessionEnds) close() {
	if e.console != nil {
		e.console.close()
	}
	for _, f := range e.theirs {
		_ = f.Close()
	}
	for _, f := range []*os.File{e.stdin, e.terminal} {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, o := range e.outputs {
		if o.from != nil {
			_ = o.from.Close()
		}
	}
}

// feed copies a client's input to the command until its end, and then closes it, except for a terminal. Input that the
// command does not take is thrown away: the connection of the client has other streams, which must not wait for it.
func (e *sessionEnds) feed(from io.Reader, buffers bufferPool) {
	_ = copyPortions(e.stdin, from, buffers)
	if e.terminal == nil {
		_ = e.stdin.Close()
	}
	_ = copyPortions(io.Discard, from, buffers)
}

// pipeSize is that of a command's pipes, in bytes: four times the kernel's, so that a command that reads or writes much,
// and the copying, wait for each other less often.
const pipeSize = 256 << 10

func widePipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if rc, err := r.SyscallConn(); err == nil { // if the size is refused, the pipe is smaller
		_ = rc.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
	return r, w, nil
}

// copyOutput copies an output until its end. If the client does not take it, the command gets SIGPIPE or SIGHUP.
func (k *Supervisor) copyOutput(to io.Writer, from *os.File) {
	if to == nil {
		to = io.Discard
	}
	_ = copyPortions(to, from, k.pool)
	_ = from.Close()
}

// resize sets the size of a terminal whenever the client changes it.
func resize(ctx context.Context, terminal *os.File, sizes <-chan Size) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			_ = size.apply(terminal) // it fails if the terminal is gone
		}
	}
}

// bufferPool has memory for copying.
type bufferPool interface {
	Get() any
	Put(x any)
}

// copyPortions copies until from ends or one of the two fails, with a buffer of the pool.
func copyPortions(to io.Writer, from io.Reader, buffers bufferPool) error {
	buf := buffers.Get().(*portion)
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buf.in[:upgrade.Frame])
	return err
}

// FirstSize returns the first size that a client sends for its terminal, if it comes at once, as clients do: then the
// command has it from the beginning.
func FirstSize(ctx context.Context, sizes <-chan Size) Size {
	const patience = 50 * time.Millisecond
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case size := <-sizes:
		return size
	case <-timer.C:
	case <-ctx.Done():
	}
	return Size{}
}
