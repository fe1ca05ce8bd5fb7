package logs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/logs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const sample = `2030-01-01T00:00:00.000000001Z stdout F one
2030-01-01T00:00:01Z stderr F two
2030-01-01T00:00:02Z stdout P three, 
2030-01-01T00:00:02Z stdout F and more
2030-01-01T00:00:03Z stdout F
2030-01-01T00:00:04Z stdout F last
`

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		o    logs.Options
		want string
	}{
		{"all of it", logs.Options{}, "one\ntwo\nthree, and more\n\nlast\n"},
		{"two lines", logs.Options{Tail: new(int64(2))}, "\nlast\n"},
		{"no line", logs.Options{Tail: new(int64(0))}, ""},
		{"more lines than there are", logs.Options{Tail: new(int64(100))}, "one\ntwo\nthree, and more\n\nlast\n"},
		{"since", logs.Options{Since: time.Date(2030, 1, 1, 0, 0, 2, 0, time.UTC)}, "three, and more\n\nlast\n"},
		{"timestamps", logs.Options{Tail: new(int64(1)), Timestamps: true}, "2030-01-01T00:00:04Z last\n"},
		{"limit", logs.Options{Limit: 6}, "one\ntw"},
		{"limit on a border", logs.Options{Limit: 4}, "one\n"},
		{"one stream", logs.Options{Stream: "stderr"}, "two\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := logs.Read(t.Context(), &b, path, tt.o); err != nil || b.String() != tt.want {
				t.Errorf("Read = %q, %v, want %q", b.String(), err, tt.want)
			}
		})
	}
}

func TestTailOfLongLogEqualsItsEnd(t *testing.T) {
	var log, text strings.Builder
	for i := range 20_000 {
		line := fmt.Sprintf("%d%s\n", i, strings.Repeat("x", i%97))
		log.WriteString("2030-01-01T00:00:00Z stdout F " + line)
		text.WriteString(line)
	}
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(text.String(), "\n")
	lines = lines[:len(lines)-1]
	for _, n := range []int{1, 7, 300, 5000, 20_000} {
		var b bytes.Buffer
		if err := logs.Read(t.Context(), &b, path, logs.Options{Tail: new(int64(n))}); err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(lines[len(lines)-n:], ""); b.String() != want {
			t.Errorf("the last %d lines are %d bytes, want %d", n, b.Len(), len(want))
		}
	}
}

// container is one whose log grows, and which ends.
type container struct {
	mu      sync.Mutex
	ended   bool
	changed chan struct{}
}

func (c *container) running() (bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended, c.changed
}

func (c *container) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	close(c.changed)
}

// lines hands on what is written to it, line by line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestFollowPrintsAtOnceAndEndsWithContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(s string) {
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	write("2030-01-01T00:00:00Z stdout F first\n")
	c := &container{changed: make(chan struct{})}
	out := make(lines)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) {
		defer close(out)
		if err := logs.Read(ctx, out, path, logs.Options{Follow: c.running}); err != nil {
			t.Errorf("Read: %v", err)
		}
	})
	want := func(line string) {
		t.Helper()
		if got := <-out; got != line {
			t.Fatalf("got %q, want %q", got, line)
		}
	}
	want("first\n")
	write("2030-01-01T00:00:00Z stdout F half")
	write(" a line\n")
	want("half a line\n")
	write("2030-01-01T00:00:00Z stdout F last words\n")
	c.end()
	want("last words\n")
	if extra, open := <-out; open {
		t.Errorf("more after the end: %q", extra)
	}
	g.Wait()
	g.Stop()
}

func TestFollowEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &container{changed: make(chan struct{})}
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) {
		if err := logs.Read(ctx, &bytes.Buffer{}, path, logs.Options{Follow: c.running}); err != nil {
			t.Errorf("Read: %v", err)
		}
	})
	g.Stop() // returns when Read has
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(sample), int64(3))
	f.Add([]byte("no format\n"), int64(1))
	f.Add([]byte("2030-01-01T00:00:00Z stdout"), int64(0))
	path := filepath.Join(f.TempDir(), "0.log")
	f.Fuzz(func(t *testing.T, log []byte, n int64) {
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
		var whole, end bytes.Buffer
		if err := logs.Read(t.Context(), &whole, path, logs.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := logs.Read(t.Context(), &end, path, logs.Options{Tail: new(max(n, 0))}); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(whole.Bytes(), end.Bytes()) {
			t.Errorf("the last %d lines %q are not the end of %q", n, end.Bytes(), whole.Bytes())
		}
	})
}
