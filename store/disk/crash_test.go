package disk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/storetest"
)

// The test program runs itself again for tests that need a process to kill or a
// file system to fill.
func TestMain(m *testing.M) {
	role, dir := os.Getenv("SAMPAN_DISK_TEST_ROLE"), os.Getenv("SAMPAN_DISK_TEST_DIR")
	var err error
	switch role {
	case "":
		os.Exit(m.Run())
	case "write":
		err = writeForever(dir)
	case "fill":
		err = fillTheDisk(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func again(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SAMPAN_DISK_TEST_ROLE="+role, "SAMPAN_DISK_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// running opens a store on dir and runs it until stop is called.
func running(dir string, history disk.History) (s *store.Store, stop func() error, err error) {
	b, err := disk.Open(dir, disk.Options{Segment: 100_000, History: history, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, err
	}
	s, err = store.Open(context.Background(), b, store.Options{Decode: storetest.Decode, History: 16})
	if err != nil {
		return nil, nil, err
	}
	g := run.NewGroup(context.Background(), 0)
	var end error
	g.Go(func(ctx context.Context) { end = s.Run(ctx) })
	return s, func() error { g.Stop(); return end }, nil
}

// kept is the history of the tests of crashes.
var kept = disk.History{Keep: time.Hour}

const (
	writers    = 16
	keysOfEach = 20
)

// pad makes values of very different lengths that show when they are not whole.
func pad(n int) string {
	return fmt.Sprintf("%d:%s:%d", n, strings.Repeat("x", n*37%3000), n)
}

func unpad(text string) (int, error) {
	n, err := strconv.Atoi(text[:max(0, strings.IndexByte(text, ':'))])
	if err != nil || text != pad(n) {
		return 0, fmt.Errorf("half a write: %.60q", text)
	}
	return n, nil
}

// writeForever counts up many keys at full speed and says on standard output
// what was acknowledged. Every seventh step deletes.
func writeForever(dir string) error {
	s, _, err := running(dir, kept)
	if err != nil {
		return err
	}
	g := run.NewGroup(context.Background(), 0)
	for w := range writers {
		g.Go(func(ctx context.Context) {
			var count [keysOfEach]int
			var have [keysOfEach]store.Revision
			l, err := s.List(store.Query{Prefix: fmt.Sprintf("pods/%d/", w)}, store.Page{})
			for _, r := range l.Records {
				var i, n int
				if _, err = fmt.Sscanf(r.Key[strings.LastIndexByte(r.Key, '/')+1:], "%d", &i); err == nil {
					n, err = unpad(r.Value.(*storetest.Text).Text)
				}
				count[i], have[i] = n, r.Revision
			}
			for step := 0; err == nil; step++ {
				i := step % keysOfEach
				count[i]++
				key := fmt.Sprintf("pods/%d/%d", w, i)
				write := store.Write{Key: key, Value: &storetest.Text{Text: pad(count[i])}, Expect: have[i]}
				if write.Delete = have[i] != 0 && rand.IntN(7) == 0; write.Delete {
					count[i] = 0
				}
				var r store.Record
				if r, err = s.Commit(ctx, write); err == nil {
					if have[i] = r.Revision; write.Delete {
						have[i] = 0
					}
					_, err = fmt.Fprintf(os.Stdout, "%s %d %d\n", key, r.Revision, count[i])
				}
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		})
	}
	g.Wait()
	return nil
}

// TestCrashLosesNothingAcknowledged kills a process that writes at full speed with SIGKILL at random
// moments: every write that was acknowledged is there, and no half of one that
// was not. SAMPAN_CRASH_ROUNDS sets the number of kills.
func TestCrashLosesNothingAcknowledged(t *testing.T) {
	rounds := 10
	if s := os.Getenv("SAMPAN_CRASH_ROUNDS"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	type state struct {
		revision store.Revision
		count    int // 0: deleted
	}
	dir := t.TempDir()
	said := map[string]state{}
	for round := range rounds {
		cmd := again(t, "write", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after, lines := rand.IntN(3000), 0
		for in := bufio.NewScanner(out); in.Scan(); lines++ {
			if lines == after {
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			var key string
			var s state
			if n, _ := fmt.Sscan(in.Text(), &key, &s.revision, &s.count); n == 3 { // the last line may be half
				said[key] = s
			}
		}
		if lines <= after {
			t.Fatalf("round %d: the writer ended on its own after %d writes", round, lines)
		}
		_ = cmd.Wait() // killed

		s, stop, err := running(dir, kept)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		past, err := s.Past()
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for key, want := range said {
			if checked++; checked > 20 { // in the order of a map, so others in the next round
				break
			}
			got := 0
			err := past.State(t.Context(), want.revision, func(k []byte) bool { return string(k) == key }, func(e store.Entry) (err error) {
				got, err = unpad(string(e.Data))
				return err
			})
			if err != nil || got != want.count {
				t.Fatalf("round %d: %s at %d was %d, %v, want %d", round, key, want.revision, got, err, want.count)
			}
		}
		l, err := s.List(store.Query{Prefix: "pods/"}, store.Page{})
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]state{}
		for _, r := range l.Records {
			n, err := unpad(r.Value.(*storetest.Text).Text)
			if err != nil {
				t.Fatalf("round %d: %s: %v", round, r.Key, err)
			}
			have[r.Key] = state{r.Revision, n}
		}
		for key, want := range said {
			switch got := have[key]; {
			case got == want, got.revision > want.revision && got.count == want.count+1:
				// As acknowledged, or one further: its answer did not get out.
			case want.count == 0 && got == state{}:
			case got == state{} && l.Revision > want.revision:
				// The deletion's answer did not get out. It can only have been the
				// last write of its key, so it must not happen to all of them.
			default:
				t.Fatalf("round %d: %s is %+v, acknowledged was %+v (store at %d)", round, key, got, want, l.Revision)
			}
		}
		unanswered := 0
		for key, want := range said {
			if have[key] != want && (want.count != 0 || have[key] != state{}) {
				unanswered++
			}
			said[key] = have[key]
		}
		if unanswered > writers {
			t.Fatalf("round %d: %d keys differ from what was acknowledged, want at most one per writer (%d)", round, unanswered, writers)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills a small file system of its own.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	cmd := again(t, "fill", dir)
	nstest.Mounts(cmd)
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// fillTheDisk is the part of TestFullDisk in a mount namespace of its own.
func fillTheDisk(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	data := filepath.Join(dir, "store")
	s, stop, err := running(data, disk.History{})
	if err != nil {
		return err
	}
	ctx, kept := context.Background(), map[string]string{}
	write := func(i int) error {
		key, text := fmt.Sprintf("pods/%d", i), pad(i)
		_, err := s.Commit(ctx, store.Write{Key: key, Value: &storetest.Text{Text: text}})
		if err == nil {
			kept[key] = text
		}
		return err
	}
	i := 0
	for ; err == nil; i++ {
		err = write(i)
	}
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), data) {
		return fmt.Errorf("on a full disk Commit = %w, want ErrFull with the file's name", err)
	}
	check := func(when string) error {
		l, err := s.List(store.Query{Prefix: "pods/"}, store.Page{})
		if err != nil {
			return err
		}
		if len(l.Records) != len(kept) {
			return fmt.Errorf("%s: %d records, acknowledged were %d", when, len(l.Records), len(kept))
		}
		for _, r := range l.Records {
			if r.Value.(*storetest.Text).Text != kept[r.Key] {
				return fmt.Errorf("%s: %s is not what was acknowledged", when, r.Key)
			}
		}
		return nil
	}
	if err := check("while the disk is full"); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return fmt.Errorf("stopping on a full disk: %w", err)
	}
	if s, stop, err = running(data, disk.History{}); err != nil {
		return fmt.Errorf("starting on a full disk: %w", err)
	}
	if err := check("after a start on a full disk"); err != nil {
		return err
	}
	for err = nil; err == nil; i++ { // there may be room for a little more
		err = write(i)
	}
	if !errors.Is(err, store.ErrFull) {
		return fmt.Errorf("on a full disk, again: Commit = %w, want ErrFull", err)
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	for range 60 { // a small part of the space: the reserve for deletions grows first, by what a slow fold left out
		i++
		if err := write(i); err != nil {
			return fmt.Errorf("after there was room again: %w", err)
		}
	}
	if err := stop(); err != nil {
		return err
	}
	if s, stop, err = running(data, disk.History{}); err != nil {
		return err
	}
	return errors.Join(check("at the end"), stop())
}
