package container

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// rotating returns an open log with these limits, which compresses nothing.
func rotating(t *testing.T, limits LogLimits) *logFile {
	t.Helper()
	l := &logFile{path: filepath.Join(t.TempDir(), "0.log"), limits: limits, log: slog.Default()}
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// logFiles returns the names and contents of a log's files, the oldest first.
func logFiles(t *testing.T, l *logFile) (names []string, contents []string) {
	t.Helper()
	names, err := filepath.Glob(l.path + "*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	names = append(names[1:], names[0])
	for i, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if data, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		names[i] = strings.TrimPrefix(filepath.Base(name), "0.log")
		contents = append(contents, string(data))
	}
	return names, contents
}

func TestLogRotatesWithinItsLimits(t *testing.T) {
	limits := LogLimits{Size: 1000, Files: 4}
	l := rotating(t, limits)
	const lines = 1000
	var all strings.Builder
	for i := range lines {
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		l.write([]byte(line))
	}
	names, contents := logFiles(t, l)
	if len(contents) != limits.Files {
		t.Errorf("the files are %q, want %d", names, limits.Files)
	}
	for i, c := range contents {
		if int64(len(c)) > limits.Size || len(c) == 0 {
			t.Errorf("file %q has %d bytes, want 1 to %d", names[i], len(c), limits.Size)
		}
	}
	if !strings.HasSuffix(all.String(), strings.Join(contents, "")) {
		t.Error("the files are not the end of what was written")
	}
	for _, name := range names[:len(names)-1] {
		if _, err := time.Parse("."+stampFormat, name); err != nil {
			t.Errorf("a rotated file is named %q: %v", name, err)
		}
	}
}

func TestLogWithoutLimitsGrows(t *testing.T) {
	l := rotating(t, LogLimits{})
	for range 1000 {
		l.write([]byte("a line\n"))
	}
	if names, _ := logFiles(t, l); len(names) != 1 {
		t.Errorf("the files are %q, want one", names)
	}
}

func TestOlderLogsAreCompressed(t *testing.T) {
	l := rotating(t, LogLimits{Size: 20, Files: 4})
	packed := make(chan struct{})
	l.start = func(f func(context.Context)) bool {
		go func() { defer close(packed); f(t.Context()) }()
		return true
	}
	l.write([]byte("the first line\n"))
	l.write([]byte("the second line\n"))
	old, err := listRotated(l.path, true)
	if err != nil || len(old) != 1 {
		t.Fatalf("rotated files %v, %v, want one", old, err)
	}
	long := time.Now().Add(-time.Minute)
	if err := os.Chtimes(old[0].path(l.path), long, long); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.path+".20300101-000000"+unfinished, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.write([]byte("the third line\n"))
	<-packed
	names, contents := logFiles(t, l)
	if want := []string{"the first line\n", "the second line\n", "the third line\n"}; !slices.Equal(contents, want) {
		t.Errorf("the files %q hold %q, want %q", names, contents, want)
	}
	if !strings.HasSuffix(names[0], gzipSuffix) || strings.HasSuffix(names[1], gzipSuffix) {
		t.Errorf("the files are %q, want the first one compressed, and not the one that has just been rotated", names)
	}
}

func TestCompressionGivesWayToRemoval(t *testing.T) {
	l := rotating(t, LogLimits{Size: 20, Files: 2})
	old := l.path + ".20300101-000000"
	if err := os.WriteFile(old, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The file is open for the compression when it is removed.
	ctx := &removing{Context: t.Context(), path: old}
	if err := l.compress(ctx, old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("compress = %v, want an error because the file is gone", err)
	}
	if names, _ := logFiles(t, l); len(names) != 1 {
		t.Errorf("the files are %q, want one", names)
	}
}

// removing is a context that removes a file when it is asked whether it holds.
type removing struct {
	context.Context //nolint:containedctx // it is itself a context
	path            string
}

func (r *removing) Err() error {
	_ = os.Remove(r.path)
	return r.Context.Err()
}

func TestLogIsAppendedToAfterARestart(t *testing.T) {
	l := rotating(t, LogLimits{Size: 30, Files: 3})
	l.write([]byte("before the restart\n"))
	l.close()
	next := &logFile{path: l.path, limits: l.limits, log: l.log}
	if err := next.reopen(); err != nil {
		t.Fatal(err)
	}
	defer next.close()
	next.write([]byte("short\n"))
	next.write([]byte("too long to fit\n"))
	_, contents := logFiles(t, next)
	if want := []string{"before the restart\nshort\n", "too long to fit\n"}; !slices.Equal(contents, want) {
		t.Errorf("the files hold %q, want %q", contents, want)
	}
}

func TestStampsAscend(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 600, time.UTC)
	for _, tt := range []struct{ last, want string }{
		{"", "20300102-030405"},
		{"20300102-030404", "20300102-030405"},
		{"20300102-030405", "20300102-030406"},
		{"20300102-030459", "20300102-030500"},
	} {
		var old []rotated
		if tt.last != "" {
			old = []rotated{{stamp: tt.last}}
		}
		if got := nextStamp(old, now); got != tt.want {
			t.Errorf("after %q: %s, want %s", tt.last, got, tt.want)
		}
	}
}
