package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A line of a log in CRI's format holds at most this much of the container's
// output; a longer one is written in parts.
const maxLine = 16 << 10

// Names of the two output streams, in logs and as files.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// A logFile is the log of one container, to which its streams are written.
type logFile struct {
	path   string // "" means that the output is dropped
	limits LogLimits
	start  func(func(context.Context)) bool // runs a function in the background, or returns false; nil means that none can be run
	log    *slog.Logger

	mu      sync.Mutex
	file    *os.File // guarded by mu; nil while it can't be opened
	size    int64    // guarded by mu; of file
	failed  bool     // guarded by mu; a failure was logged since the last success
	stuck   bool     // guarded by mu; the last rotation failed, which the log says
	torn    bool     // guarded by mu; the file ends within a line
	packing bool     // guarded by mu; older files are being compressed
}

// newLogFile returns the log of a container of k.
func (k *Supervisor) newLogFile(path string) *logFile {
	return &logFile{path: path, limits: k.opts.Logs, log: k.opts.Log, start: func(f func(context.Context)) bool {
		k.mu.Lock()
		group := k.group
		k.mu.Unlock()
		return group.Go(f)
	}}
}

// reopen closes the file and opens its path again, making it if need be.
func (l *logFile) reopen() error {
	if l.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := openLog(l.path)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("log: %w", err), f.Close())
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.size = f, st.Size()
	return nil
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
}

// content returns a reader of what the current file has now, or nil without a file.
func (l *logFile) content() (io.ReadCloser, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return nil, nil
	}
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, l.size), f}, nil
}

// write appends whole lines. Output that cannot be written is lost, with one
// log message, because a container must not block when the disk is full.
func (l *logFile) write(lines []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	if l.limits.Size > 0 && l.size > 0 && l.size+int64(len(lines)) > l.limits.Size {
		err := l.rotate()
		if err != nil && !l.stuck {
			l.log.Error("a log couldn't be rotated and grows beyond its limit", "log", l.path, "err", err)
		}
		l.stuck = err != nil
	}
	if l.torn {
		lines = append([]byte("\n"), lines...)
	}
	n, err := l.file.Write(lines)
	l.size += int64(n)
	if err != nil {
		l.mend(lines[:n])
	} else {
		l.torn = false
	}
	if err != nil && !l.failed {
		l.log.Error("container output is being lost", "log", l.path, "err", err)
	}
	l.failed = err != nil
}

// mend takes the beginning of a line off the file, which is all of it that found room,
// so that the lines that come later are whole. The caller holds mu.
func (l *logFile) mend(written []byte) {
	rest := len(written) - 1 - bytes.LastIndexByte(written, '\n')
	if rest == 0 {
		l.torn = l.torn && len(written) == 0
		return
	}
	st, err := l.file.Stat()
	if err == nil {
		err = l.file.Truncate(st.Size() - int64(rest))
		l.size = st.Size() - int64(rest)
	}
	l.torn = err != nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// A stream copies one of a container's outputs into its log, and to the clients that are attached to it.
type stream struct {
	name string
	fifo *os.File // our own descriptor, for reading and writing, nonblocking; or a terminal
	to   *logFile
	pool *sync.Pool // of *portion
	taps taps

	mu   sync.Mutex // held while output is written to the log, so that a client gets what comes after it
	part []byte     // guarded by mu; the beginning of a line whose end hasn't come
}

// openStream makes the FIFO at path if need be and opens it (K3).
func openStream(name, path string, to *logFile, pool *sync.Pool) (*stream, error) {
	f, err := openFIFO(path)
	if err != nil {
		return nil, err
	}
	return &stream{name: name, fifo: f, to: to, pool: pool}, nil
}

// carry copies until the container has ended and all of its output is read, or
// until ctx is cancelled. In the second case the container keeps running, and its
// output waits in the FIFO; an unfinished line is written as a part.
func (s *stream) carry(ctx context.Context, ended <-chan struct{}) {
	rc, err := s.fifo.SyscallConn()
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, s.wake)()
	defer s.taps.end()
	for {
		err := rc.Read(func(fd uintptr) bool { return s.read(ctx, int(fd)) })
		select {
		case <-ended:
			// All writers are gone, so what is in the FIFO now is all there is.
			_ = rc.Control(func(fd uintptr) {
				for s.read(ctx, int(fd)) {
				}
			})
			s.flush()
			return
		case <-ctx.Done():
			s.flush()
			return
		default:
		}
		if err != nil {
			return
		}
	}
}

// wake makes carry check whether the container has ended.
func (s *stream) wake() { _ = s.fifo.SetReadDeadline(time.Unix(1, 0)) }

// read takes one portion out of the FIFO, writes its lines, and passes it on to the
// attached clients. It reports whether there was anything to read.
func (s *stream) read(ctx context.Context, fd int) bool {
	buf := s.pool.Get().(*portion)
	defer s.pool.Put(buf)
	var n int
	for {
		var err error
		if n, err = unix.Read(fd, buf.in[:]); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if n <= 0 { // also a terminal without a process: its processes may open it again
		return false
	}
	s.taps.send(ctx, s.record(buf, n), buf.in[:n])
	return true
}

// record writes the lines of a portion of n bytes to the log. It returns the clients that get the portion: later clients find
// it in the log.
func (s *stream) record(buf *portion, n int) []*tap {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	out := buf.out[:0]
	for data := buf.in[:n]; len(data) > 0; {
		end := bytes.IndexByte(data, '\n')
		piece, whole := data, end >= 0
		if whole {
			piece = data[:end]
		}
		if room := maxLine - len(s.part); len(piece) > room {
			piece = piece[:room]
			out = s.line(out, now, "P", piece)
			data = data[room:]
			continue
		}
		if !whole {
			s.part = append(s.part, piece...)
			break
		}
		out = s.line(out, now, "F", piece)
		data = data[end+1:]
	}
	if len(out) > 0 {
		s.to.write(out)
	}
	buf.out = out
	return s.taps.clients()
}

// line appends one line of the log: what was kept of it, and its end.
func (s *stream) line(out []byte, now time.Time, tag string, end []byte) []byte {
	out = now.UTC().AppendFormat(out, "2006-01-02T15:04:05.000000000Z07:00")
	out = append(out, ' ')
	out = append(out, s.name...)
	out = append(out, ' ')
	out = append(out, tag...)
	out = append(out, ' ')
	out = append(out, s.part...)
	out = append(out, end...)
	s.part = s.part[:0]
	if cap(s.part) > 1024 {
		s.part = nil // a long line is rare, and there are many streams
	}
	return append(out, '\n')
}

// flush writes the beginning of a line whose end has not come, tagged as partial: a
// reader must not print a newline that the container did not write.
func (s *stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.part) > 0 {
		s.to.write(s.line(nil, time.Now(), "P", nil))
	}
}

// A portion is the memory that reading needs only while there is something to
// read.
type portion struct {
	in  [64 << 10]byte
	out []byte
}

func newPool() *sync.Pool { return &sync.Pool{New: func() any { return new(portion) }} }
