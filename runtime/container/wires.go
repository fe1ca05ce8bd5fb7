package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"
)

// wires are the descriptors of a container's streams.
type wires struct {
	streams []*stream // output: standard output and error, or a terminal
	stdin   *os.File  // what is written there is the container's input; nil if it has none
	theirs  []*os.File
	console *console // nil without a terminal, and once that is in streams
}

// connect makes the streams of a container that is about to be started.
func (k *Supervisor) connect(e *entry, r *Record, proc *libcontainer.Process) (*wires, error) {
	w := &wires{}
	err := w.open(k, e, r, proc)
	if err != nil {
		w.closeTheirs()
		w.closeOurs()
		return nil, err
	}
	return w, nil
}

func (w *wires) open(k *Supervisor, e *entry, r *Record, proc *libcontainer.Process) error {
	if r.Spec.Terminal {
		var err error
		if w.console, err = newConsole(); err == nil {
			proc.ConsoleSocket = w.console.theirs
		}
		return err
	}
	for _, name := range []string{Stdout, Stderr} {
		s, err := openStream(name, filepath.Join(e.dir, name), e.out, k.pool)
		if err != nil {
			return err
		}
		w.streams = append(w.streams, s)
		// The container's end is open for reading, too, so that it survives us (K3).
		f, err := os.OpenFile(s.fifo.Name(), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		w.theirs = append(w.theirs, f)
		if r.Spec.UserNS != "" { // so that a program can open /dev/stdout
			if err := f.Chown(int(r.Spec.Users.Host), int(r.Spec.Users.Host)); err != nil {
				return err
			}
		}
	}
	proc.Stdout, proc.Stderr = w.theirs[0], w.theirs[1]
	if !r.Spec.Stdin {
		return nil
	}
	in, err := w.openStdin(e.dir, r)
	if err != nil {
		return err
	}
	proc.Stdin = in
	return nil
}

// openStdin opens both ends of the FIFO of standard input, and returns the container's. It may be written to by the
// container as well, so that it does not end when we are killed; but it must be able to end if that is wanted.
func (w *wires) openStdin(dir string, r *Record) (*os.File, error) {
	path := filepath.Join(dir, "stdin")
	var err error
	if w.stdin, err = openFIFO(path); err != nil {
		return nil, err
	}
	mode := os.O_RDWR
	if r.Spec.StdinOnce {
		mode = os.O_RDONLY
	}
	f, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	w.theirs = append(w.theirs, f)
	return f, nil
}

// openFIFO opens the FIFO at path for reading and writing, nonblocking, and makes it if need be.
func openFIFO(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("mkfifo %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
}

// takeTerminal makes a stream of the terminal of a container that was started, if it has one.
func (w *wires) takeTerminal(e *entry, r *Record, pool *sync.Pool) error {
	if w.console == nil {
		return nil
	}
	f, err := w.console.receive()
	if err != nil {
		return err
	}
	w.setTerminal(f, e, r, pool)
	return nil
}

func (w *wires) setTerminal(f *os.File, e *entry, r *Record, pool *sync.Pool) {
	w.streams = []*stream{{name: Stdout, fifo: f, to: e.out, pool: pool}}
	if r.Spec.Stdin {
		w.stdin = f
	}
}

// reconnect takes up the streams of a container that an earlier supervisor has started: with its descriptors in the
// order of [wires.files], or by their names. A terminal has no name.
func (k *Supervisor) reconnect(e *entry, r *Record, handed []int) (*wires, error) {
	w := &wires{}
	var files []*os.File
	for _, fd := range handed {
		unix.CloseOnExec(fd)
		// It may be blocking or not: O_NONBLOCK belongs to the open file.
		_ = unix.SetNonblock(fd, true)
		files = append(files, os.NewFile(uintptr(fd), e.dir))
	}
	take := func(path string) (*os.File, error) {
		if len(files) == 0 {
			return openFIFO(path)
		}
		f := files[0]
		files = files[1:]
		return f, nil
	}
	if r.Spec.Terminal {
		if len(files) > 0 {
			w.setTerminal(files[0], e, r, k.pool)
		}
		return w, nil
	}
	for _, name := range []string{Stdout, Stderr} {
		f, err := take(filepath.Join(e.dir, name))
		if err != nil {
			w.closeOurs()
			return nil, err
		}
		w.streams = append(w.streams, &stream{name: name, fifo: f, to: e.out, pool: k.pool})
	}
	if r.Spec.Stdin && !r.NoStdin {
		var err error
		if w.stdin, err = take(filepath.Join(e.dir, "stdin")); err != nil {
			w.closeOurs()
			return nil, err
		}
	}
	return w, nil
}

// files returns the descriptors that have to survive this process.
func (w *wires) files() []*os.File {
	var files []*os.File
	for _, s := range w.streams {
		files = append(files, s.fifo)
	}
	if w.stdin != nil && (len(files) == 0 || w.stdin != files[0]) { // a terminal is both
		files = append(files, w.stdin)
	}
	return files
}

// closeTheirs closes the container's ends, which it has copies of once it is started.
func (w *wires) closeTheirs() {
	for _, f := range w.theirs {
		_ = f.Close()
	}
	w.theirs = nil
	if w.console != nil {
		w.console.close()
		w.console = nil
	}
}

func (w *wires) closeOurs() {
	for _, f := range w.files() {
		_ = f.Close()
	}
}
