package logs_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/logs"
)

// rotator writes a log and rotates it as container runtimes do.
type rotator struct {
	t    *testing.T
	path string
	f    *os.File
	n    int // of rotations
}

func newRotator(t *testing.T) *rotator {
	r := &rotator{t: t, path: filepath.Join(t.TempDir(), "0.log")}
	r.open()
	return r
}

func (r *rotator) open() {
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		r.t.Error(err)
	}
	r.f = f
}

func (r *rotator) write(text string) {
	if _, err := r.f.WriteString("2030-01-01T00:00:00Z stdout F " + text + "\n"); err != nil {
		r.t.Error(err)
	}
}

// name returns the name of the file that the nth rotation has put away.
func (r *rotator) name(n int) string {
	return fmt.Sprintf("%s.20300101-%06d", r.path, 100000+n+n/60*40)
}

func (r *rotator) rotate() {
	r.n++
	if err := os.Rename(r.path, r.name(r.n)); err != nil {
		r.t.Error(err)
	}
	old := r.f
	r.open()
	_ = old.Close()
}

// pack replaces a rotated file by a compressed one.
func (r *rotator) pack(n int) {
	data, err := os.ReadFile(r.name(n))
	if err != nil {
		r.t.Error(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data)
	_ = z.Close()
	if err := os.WriteFile(r.name(n)+".tmp", b.Bytes(), 0o600); err != nil {
		r.t.Error(err)
	}
	if err := os.Rename(r.name(n)+".tmp", r.name(n)+".gz"); err != nil {
		r.t.Error(err)
	}
	if err := os.Remove(r.name(n)); err != nil {
		r.t.Error(err)
	}
}

// beginning keeps what is written, and reports when the log is open.
type beginning struct {
	bytes.Buffer
	once  sync.Once
	begun chan struct{}
}

func (b *beginning) Flush() { b.once.Do(func() { close(b.begun) }) }

// TestFollowLosesNothingOverRotations writes and rotates as fast as it can while
// another goroutine reads. No file is removed, so every line must arrive, once.
func TestFollowLosesNothingOverRotations(t *testing.T) {
	r := newRotator(t)
	const rotations, lines = 50, 200
	c := &container{changed: make(chan struct{})}
	out := &beginning{begun: make(chan struct{})}
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) {
		if err := logs.Read(ctx, out, r.path, logs.Options{Follow: c.running}); err != nil {
			t.Errorf("Read: %v", err)
		}
	})
	<-out.begun
	g.Go(func(context.Context) {
		for i := range rotations * lines {
			r.write(strconv.Itoa(i))
			if i%lines == lines-1 {
				r.rotate()
				if r.n > 2 {
					r.pack(r.n - 2)
				}
			}
		}
		c.end()
	})
	g.Wait()
	g.Stop()
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, line := range got {
		if line != strconv.Itoa(i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	if len(got) != rotations*lines {
		t.Errorf("%d lines, want %d", len(got), rotations*lines)
	}
}

// TestFollowWaitsForTheNewFile rotates as a kubelet does: the runtime goes on writing
// to the renamed file until it is asked to open the path again.
func TestFollowWaitsForTheNewFile(t *testing.T) {
	r := newRotator(t)
	c := &container{changed: make(chan struct{})}
	out := make(lines)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) {
		defer close(out)
		if err := logs.Read(ctx, out, r.path, logs.Options{Follow: c.running}); err != nil {
			t.Errorf("Read: %v", err)
		}
	})
	want := func(line string) {
		t.Helper()
		if got := <-out; got != line {
			t.Fatalf("got %q, want %q", got, line)
		}
	}
	r.write("one")
	want("one\n")
	if err := os.Rename(r.path, r.name(1)); err != nil {
		t.Fatal(err)
	}
	r.write("two")
	want("two\n")
	old := r.f
	defer old.Close()
	r.open()
	r.write("three")
	want("three\n")
	c.end()
	if extra, open := <-out; open {
		t.Errorf("more after the end: %q", extra)
	}
	g.Wait()
	g.Stop()
}

// TestFollowSkipsRemovedFiles lets a reader stand still while the files that it would
// read next are removed.
func TestFollowSkipsRemovedFiles(t *testing.T) {
	r := newRotator(t)
	c := &container{changed: make(chan struct{})}
	out := make(lines)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) {
		defer close(out)
		if err := logs.Read(ctx, out, r.path, logs.Options{Follow: c.running}); err != nil {
			t.Errorf("Read: %v", err)
		}
	})
	r.write("file 0")
	for i := 1; i <= 4; i++ { // the reader waits in its first write
		r.rotate()
		r.write("file " + strconv.Itoa(i))
	}
	for n := 1; n <= 3; n++ {
		if err := os.Remove(r.name(n)); err != nil {
			t.Fatal(err)
		}
	}
	c.end()
	var got []string
	for line := range out {
		got = append(got, line)
	}
	// Which file it had open first depends on when it began.
	if n := len(got); n == 0 || got[n-1] != "file 4\n" {
		t.Errorf("%q, want the last file", got)
	}
	g.Wait()
	g.Stop()
}

func TestRemove(t *testing.T) {
	r := newRotator(t)
	r.write("one")
	r.rotate()
	r.write("two")
	r.rotate()
	r.pack(1)
	other := filepath.Join(filepath.Dir(r.path), "1.log")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	logs.Remove(r.path)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(r.path), "*"))
	if err != nil || len(left) != 1 || left[0] != other {
		t.Errorf("left: %q, %v, want %s alone", left, err, other)
	}
}
