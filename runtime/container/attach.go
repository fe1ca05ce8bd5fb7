package container

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// An Attachment connects a client to the streams of a container.
type Attachment struct {
	Stdin          io.Reader   // nil means none. It is read until its end, even after Attach has returned
	Stdout, Stderr io.Writer   // what the container writes from now on, or what Since says; nil means that it is not wanted
	Resize         <-chan Size // of the terminal, if the container has one; nil or closed means never

	// Since, if not nil, has the client get first what the container wrote after that time, as far as its current log file
	// has it. A command may have printed all it prints before the first client comes.
	Since *time.Time
}

// Attach connects a client to the streams of a running container, until the container ends (then it returns nil after
// all output is written, or an error if its output had ended before and Since is nil), the client's input ends (then the client is detached), or ctx is cancelled. If
// [Spec.StdinOnce] is set and there is no terminal, the end of the client's input, or the client's disconnection
// (ErrClientGone), closes the container's input for good, and does not detach the client from the output.
//
// A client that reads slowly delays the container, so that it misses nothing. One that reads nothing for a while is
// detached with an error.
func (k *Supervisor) Attach(ctx context.Context, id string, a Attachment) error {
	e, err := k.get(id)
	if err != nil {
		return err
	}
	e.mu.Lock()
	r, streams, stdin := e.record, e.streams, e.stdin
	e.mu.Unlock()
	if r.State() != Running {
		return fmt.Errorf("container %s is not running: %w", id, ErrState)
	}
	ctx, detach := context.WithCancelCause(ctx)
	defer detach(nil)
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	if r.Spec.Terminal && len(streams) > 0 {
		group.Go(func(ctx context.Context) { resize(ctx, streams[0].fifo, a.Resize) })
	}
	if a.Stdin != nil {
		k.background(func(context.Context) { k.feedContainer(ctx, e, stdin, a.Stdin, detach) })
	}
	results := make(chan error, len(streams))
	outputs := 0
	for _, s := range streams {
		to := a.Stdout
		if s.name == Stderr {
			to = a.Stderr
		}
		if to != nil {
			outputs++
			group.Go(func(ctx context.Context) { results <- s.follow(ctx, to, a.Since) })
		}
	}
	for range outputs {
		if err := <-results; err != nil {
			return detached(ctx, err)
		}
	}
	if outputs > 0 {
		return nil
	}
	select {
	case <-e.gone:
	case <-ctx.Done():
	}
	return detached(ctx, context.Cause(ctx))
}

// errDetached is the cause of the end of an attachment whose client has closed its input.
var errDetached = errors.New("the input of the client has ended")

// detached returns nil instead of err if the client wanted the end.
func detached(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errDetached) {
		return nil
	}
	return err
}

// feedContainer copies a client's input to a container, and does what its end means.
func (k *Supervisor) feedContainer(ctx context.Context, e *entry, to *os.File, from io.Reader, detach context.CancelCauseFunc) {
	if to != nil {
		_ = copyPortions(to, from, k.pool)
	}
	_ = copyPortions(io.Discard, from, k.pool)
	cause := context.Cause(ctx)
	if cause != nil && !errors.Is(cause, ErrClientGone) {
		return // detached, or the runtime stops: the container can be attached to again
	}
	r := e.snapshot()
	if !r.Spec.StdinOnce || r.Spec.Terminal {
		detach(errDetached)
		return
	}
	if err := k.closeStdin(e); err != nil {
		k.opts.Log.Error("standard input of a container is closed, which couldn't be recorded", "container", r.ID, "err", err)
	}
}

// closeStdin ends the standard input of a container for good.
func (k *Supervisor) closeStdin(e *entry) error {
	e.mu.Lock()
	stdin, held, streams := e.stdin, e.proc, e.streams
	e.stdin = nil
	e.mu.Unlock()
	if stdin == nil {
		return nil
	}
	r, err := e.update(func(r *Record) { r.NoStdin = true })
	kept := k.store.replace(r.ID, append([]*os.File{held.file}, (&wires{streams: streams}).files()...))
	_ = stdin.Close()
	return errors.Join(err, kept)
}

const (
	tapBuffer   = 16               // portions of at most 64 KiB that wait for a client
	tapPatience = 30 * time.Second // a client that takes nothing for so long is detached
)

var errSlow = fmt.Errorf("the client has not read any output of the container for %v", tapPatience)

// taps are the clients that are attached to a stream. The goroutine that carries the stream calls send and end.
type taps struct {
	mu   sync.Mutex
	all  []*tap // guarded by mu; replaced, never changed
	over bool   // guarded by mu
}

type tap struct {
	data chan []byte   // closed by the carrier after the last portion, or when it drops the tap
	gone chan struct{} // closed by the client
}

// add adds a tap. It returns nil if the stream has ended.
func (t *taps) add() *tap {
	one := &tap{data: make(chan []byte, tapBuffer), gone: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	t.all = append(slices.Clip(t.all), one)
	return one
}

// follow writes what the tap gets, until the end of the stream (nil), and removes the tap.
func (t *taps) follow(ctx context.Context, one *tap, to io.Writer) error {
	defer close(one.gone)
	defer t.remove(one)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case data, ok := <-one.data:
			if !ok {
				return t.ended()
			}
			if _, err := to.Write(data); err != nil {
				return err
			}
		}
	}
}

// errOver is the error for a client that comes when the output of a container has ended, and that does not get what was
// written before. Clients such as kubectl then print the log.
var errOver = fmt.Errorf("the process of the container has ended: %w", ErrState)

// follow writes what the container writes to the stream from now on, and before that what it wrote since a time, if since is
// not nil, until the end of the stream (nil). While it writes what was before, it does not delay the container for longer
// than any client does.
func (s *stream) follow(ctx context.Context, to io.Writer, since *time.Time) error {
	s.mu.Lock()
	one := s.taps.add()
	var earlier io.ReadCloser
	var err error
	if since != nil {
		earlier, err = s.to.content()
	}
	part := slices.Clone(s.part)
	s.mu.Unlock()
	if since == nil && one == nil {
		return errOver
	}
	if earlier != nil {
		err = replay(ctx, to, earlier, s.name, *since)
		_ = earlier.Close()
	}
	if since != nil && err == nil && len(part) > 0 {
		_, err = to.Write(part)
	}
	switch {
	case one == nil:
		return err
	case err != nil:
		close(one.gone)
		s.taps.remove(one)
		return err
	}
	return s.taps.follow(ctx, one, to)
}

// replay writes what a log has of a stream after a time.
func replay(ctx context.Context, to io.Writer, from io.Reader, stream string, since time.Time) error {
	lines := bufio.NewReaderSize(from, 2*maxLine)
	for ctx.Err() == nil {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil // within a line that could not be written whole
		}
		if err != nil {
			return err
		}
		at, rest, _ := bytes.Cut(line, []byte(" "))
		name, rest, _ := bytes.Cut(rest, []byte(" "))
		tag, content, _ := bytes.Cut(rest, []byte(" "))
		if when, err := time.Parse(time.RFC3339Nano, string(at)); err != nil || !when.After(since) || string(name) != stream {
			continue
		}
		if string(tag) == "P" {
			content = bytes.TrimSuffix(content, []byte("\n"))
		}
		if _, err := to.Write(content); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// ended returns why the data of a tap has ended.
func (t *taps) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	return errSlow
}

// remove reports whether the tap was there.
func (t *taps) remove(one *tap) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.all, one)
	if i < 0 {
		return false
	}
	t.all = slices.Concat(t.all[:i], t.all[i+1:])
	return true
}

// clients returns the taps of now. The caller must not change the list.
func (t *taps) clients() []*tap {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// send passes data on to clients, and waits for those with many unread portions.
func (t *taps) send(ctx context.Context, all []*tap, data []byte) {
	if len(all) == 0 {
		return
	}
	data = bytes.Clone(data)
	for _, one := range all {
		if !one.send(ctx, data) && t.remove(one) {
			close(one.data)
		}
	}
}

func (one *tap) send(ctx context.Context, data []byte) bool {
	select {
	case one.data <- data:
		return true
	default:
	}
	timer := time.NewTimer(tapPatience)
	defer timer.Stop()
	select {
	case one.data <- data:
		return true
	case <-one.gone:
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// end lets the clients finish.
func (t *taps) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for _, one := range t.all {
		close(one.data)
	}
	t.all = nil
}
