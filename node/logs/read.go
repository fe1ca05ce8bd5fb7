package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// Options select the part of a log to print, and its form. The zero value prints all of
// it.
type Options struct {
	Tail       *int64    // so many lines from the end; nil means all of them
	Since      time.Time // leave out what is older; the zero time leaves out nothing
	Timestamps bool      // put the time before each entry
	Limit      int64     // stop after so many bytes; 0 means no limit
	Stream     string    // "stdout" or "stderr"; empty means both

	// Follow waits for more, until the container has ended: while it returns
	// true. The channel is closed when the answer may have changed. Nil means
	// that there is no more to come.
	Follow func() (running bool, changed <-chan struct{})
}

// A flusher sends on what has been written so far.
type flusher interface{ Flush() }

// Read prints a log to w. It returns nil when it has printed what was asked for,
// when ctx is cancelled, and when the limit is reached. If w has a method Flush, that
// is called before each wait.
func Read(ctx context.Context, w io.Writer, path string, o Options) error {
	f, err := openLatest(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	if o.Tail != nil {
		start, err := tail(f, *o.Tail)
		if err != nil {
			return fmt.Errorf("end of %s: %w", path, err)
		}
		if _, err := f.Seek(start, io.SeekStart); err != nil {
			return err
		}
	}
	p := &printer{w: w, o: o, left: o.Limit}
	var file source = f
	if o.Follow != nil {
		follow, err := newFollower(ctx, path, f, o.Follow)
		if err != nil {
			return err
		}
		defer follow.close()
		follow.idle = func() {
			if fl, ok := w.(flusher); ok {
				fl.Flush()
			}
		}
		// The start of the answer is sent even if there is nothing to say yet.
		follow.idle()
		file = follow
	}
	err = p.copy(file)
	if errors.Is(err, errLimit) || ctx.Err() != nil {
		return nil
	}
	return err
}

// openLatest opens the file at path. During a rotation there is none for a moment.
func openLatest(ctx context.Context, path string) (*os.File, error) {
	const tries, pause = 100, time.Millisecond
	for i := 0; ; i++ {
		f, err := os.Open(path)
		if !errors.Is(err, fs.ErrNotExist) || i == tries {
			return f, err
		}
		if _, found, lookErr := nameAfter(path, ""); lookErr != nil || found == "" {
			return nil, err
		}
		if !run.Pause(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

type source interface{ Read(p []byte) (int, error) }

var errLimit = errors.New("limit reached")

// printer turns entries into what is printed.
type printer struct {
	w    io.Writer
	o    Options
	left int64
}

func (p *printer) copy(r io.Reader) error {
	b := bufio.NewReaderSize(r, 32<<10)
	for {
		line, err := b.ReadBytes('\n')
		if len(line) > 0 {
			if err := p.entry(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// entry prints one line of the file. A line that is not in the format is
// printed as it is.
func (p *printer) entry(line []byte) error {
	stamp, stream, tag, text, ok := parse(line)
	if !ok {
		return p.write(line)
	}
	if p.o.Stream != "" && p.o.Stream != stream {
		return nil
	}
	if !p.o.Since.IsZero() {
		if t, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil && t.Before(p.o.Since) {
			return nil
		}
	}
	if p.o.Timestamps {
		if err := p.write(append(bytes.Clone(stamp), ' ')); err != nil {
			return err
		}
	}
	if tag == 'P' {
		text = bytes.TrimSuffix(text, []byte{'\n'})
	}
	return p.write(text)
}

func parse(line []byte) (stamp []byte, stream string, tag byte, text []byte, ok bool) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return nil, "", 0, nil, false
	}
	name, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || string(name) != "stdout" && string(name) != "stderr" {
		return nil, "", 0, nil, false
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		// An empty line may come without the last space.
		tags, text = bytes.TrimSuffix(rest, []byte{'\n'}), []byte{'\n'}
	}
	if len(tags) == 0 {
		return nil, "", 0, nil, false
	}
	return stamp, string(name), tags[0], text, true
}

func (p *printer) write(b []byte) error {
	if p.o.Limit > 0 && int64(len(b)) >= p.left {
		if _, err := p.w.Write(b[:p.left]); err != nil {
			return err
		}
		return errLimit
	}
	p.left -= int64(len(b))
	_, err := p.w.Write(b)
	return err
}

// tail returns where the last n lines of f begin.
func tail(f io.ReaderAt, n int64) (int64, error) {
	size, err := sizeOf(f)
	if err != nil || n == 0 {
		return size, err
	}
	const block = 16 << 10
	buf := make([]byte, block)
	for end := size; end > 0; {
		start := max(end-block, 0)
		part := buf[:end-start]
		if _, err := f.ReadAt(part, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i, p := range slices.Backward(part) {
			if p != '\n' || start+int64(i) == size-1 {
				continue // the last byte ends the last line, it begins none
			}
			if n--; n == 0 {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}

func sizeOf(f io.ReaderAt) (int64, error) {
	s, ok := f.(io.Seeker)
	if !ok {
		return 0, errors.New("size is not known")
	}
	return s.Seek(0, io.SeekEnd)
}

// Remove removes the log at path with all its rotated files, as far as that is
// possible.
func Remove(path string) {
	_ = os.Remove(path)
	entries, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".") {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}
