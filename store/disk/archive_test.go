package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// pastOptions are options with which a few hundred writes are several generations.
var pastOptions = Options{Segment: 4 << 10, Log: quiet.Log, History: History{Keep: time.Hour}}

// filled returns a directory with several generations, of a store that has stopped, and what was at each revision.
func filled(t *testing.T, opts Options) (dir string, states map[store.Revision]map[string]string) {
	t.Helper()
	dir = t.TempDir()
	s := openPastStore(t, dir, opts)
	live := map[string]string{}
	states = map[store.Revision]map[string]string{}
	for i := range 400 {
		key := fmt.Sprint("pods/", i%7)
		live[key] = strings.Repeat("x", 100) + fmt.Sprint(i)
		states[s.put(t, key, live[key], store.Author{User: "u"})] = maps.Clone(live)
	}
	s.stop()
	return dir, states
}

// checkStates compares the history with a few of the states.
func checkStates(t *testing.T, p store.Past, states map[store.Revision]map[string]string) {
	t.Helper()
	for r := store.Revision(1); r <= store.Revision(len(states)); r += 37 {
		if got, err := stateAt(t, p, r); err != nil || !maps.Equal(got, states[r]) {
			t.Errorf("at %d: %d records, %v", r, len(got), err)
		}
	}
}

// kept returns the generations of a history.
func kept(t *testing.T, p store.Past) []generation {
	t.Helper()
	all, err := p.(*archive).generations()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// copyDir copies a directory with its history.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestCrashWhileFilesMoveLosesNoHistory has a crash leave each number of the files that a fold replaced where they
// were.
func TestCrashWhileFilesMoveLosesNoHistory(t *testing.T) {
	dir, states := filled(t, pastOptions)
	all := kept(t, newArchive(dir, pastOptions))
	last := all[len(all)-1].names
	for left := range len(last) + 1 {
		crashed := copyDir(t, dir)
		for _, name := range last[left:] {
			if err := os.Rename(filepath.Join(crashed, historyDir, name), filepath.Join(crashed, name)); err != nil {
				t.Fatal(err)
			}
		}
		// A purge may have been under way, too.
		half := filepath.Join(crashed, historyDir, ".00000001.log.1234.new")
		if err := os.WriteFile(half, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := openPastStore(t, crashed, pastOptions)
		checkStates(t, s.past(t), states)
		s.stop()
		if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that is not complete is still there: %v", err)
		}
		if names, err := filepath.Glob(filepath.Join(crashed, "*.snapshot")); err != nil || len(names) != 1 {
			t.Errorf("with %d files moved, the store has %q, %v", left, names, err)
		}
	}
}

// TestDamagedHistoryIsOneError damages each file of the history: the store starts and works, and a read is right or an
// error that names the file. Without the file, newer states can be read.
func TestDamagedHistoryIsOneError(t *testing.T) {
	dir, states := filled(t, pastOptions)
	names, err := filepath.Glob(filepath.Join(dir, historyDir, "*"))
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			at := random.IntN(len(data))
			for _, damaged := range [][]byte{
				slices.Concat(data[:at], []byte{data[at] ^ 0x41}, data[at+1:]), // flipped
				data[:at], // cut off
			} {
				if err := os.WriteFile(name, damaged, 0o600); err != nil {
					t.Fatal(err)
				}
				checkDamaged(t, copyDir(t, dir), filepath.Base(name), states)
			}
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func checkDamaged(t *testing.T, dir, name string, states map[store.Revision]map[string]string) {
	t.Helper()
	s := openPastStore(t, dir, pastOptions)
	defer s.stop()
	p := s.past(t)
	for _, r := range []store.Revision{1, 150, 399} {
		got, err := stateAt(t, p, r)
		damage, ok := errors.AsType[*store.PastError](err)
		_, expired := errors.AsType[*store.ExpiredError](err)
		switch {
		case err == nil && maps.Equal(got, states[r]), expired:
		case !ok || filepath.Base(damage.File) != name:
			t.Errorf("%s is damaged, and the state at %d is %d records, %v", name, r, len(got), err)
		}
	}
	if err := os.Remove(filepath.Join(dir, historyDir, name)); err != nil {
		t.Fatal(err)
	}
	newest := s.put(t, "pods/0", "new", store.Author{})
	if got, err := stateAt(t, p, newest); err != nil || got["pods/0"] != "new" || got["pods/1"] != states[400]["pods/1"] {
		t.Errorf("without %s the newest state is %d records, %v", name, len(got), err)
	}
}

// TestHistoryThatIsNoFileIsOneError has a pipe, a directory and a link in the place of a file of the history: reads and
// purges fail with an error that names it, and the store goes on.
func TestHistoryThatIsNoFileIsOneError(t *testing.T) {
	for kind, put := range map[string]func(name string) error{
		"pipe":      func(name string) error { return unix.Mkfifo(name, 0o600) },
		"directory": func(name string) error { return os.Mkdir(name, 0o700) },
		"link":      func(name string) error { return os.Symlink("/dev/zero", name) },
	} {
		dir, _ := filled(t, pastOptions)
		s := openPastStore(t, dir, pastOptions)
		all := kept(t, s.past(t))
		name := filepath.Join(dir, historyDir, all[len(all)-1].names[0])
		if err := errors.Join(os.Remove(name), put(name)); err != nil {
			t.Fatal(err)
		}
		_, err := stateAt(t, s.past(t), 1)
		if damage, ok := errors.AsType[*store.PastError](err); !ok || damage.File != name {
			t.Errorf("reading with a %s: %v", kind, err)
		}
		err = s.Purge(t.Context(), everyKey)
		if damage, ok := errors.AsType[*store.PastError](err); !ok || damage.File != name {
			t.Errorf("purging with a %s: %v", kind, err)
		}
		s.put(t, "pods/0", "new", store.Author{})
		s.stop()
	}
}

// TestSegmentCutBetweenRecordsIsDamage cuts a segment of the history where a record ends.
func TestSegmentCutBetweenRecordsIsDamage(t *testing.T) {
	dir, _ := filled(t, pastOptions)
	name := filepath.Join(dir, historyDir, fileName(kindLog, 1))
	f, err := openPast(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var ends []int64
	err = f.frames(func(payload []byte, at int64) error {
		ends = append(ends, at+int64(len(payload)))
		return nil
	})
	if err != nil || len(ends) < 4 {
		t.Fatal(ends, err)
	}
	for _, end := range []int64{headerSize, ends[0], ends[len(ends)-2]} {
		cut := copyDir(t, dir)
		if err := os.Truncate(filepath.Join(cut, historyDir, filepath.Base(name)), end); err != nil {
			t.Fatal(err)
		}
		s := openPastStore(t, cut, pastOptions)
		q := store.PastQuery{Match: everyKey, To: 400, Limit: 400}
		_, err := s.past(t).Writes(t.Context(), q, func(store.PastWrite) error { return nil })
		damage, ok := errors.AsType[*store.PastError](err)
		if !ok || filepath.Base(damage.File) != filepath.Base(name) || damage.Offset != end {
			t.Errorf("cut at %d: %v", end, err)
		}
		s.stop()
	}
}

// TestForeignFilesInTheHistoryStay has files of others beside those of the history: purges work, and neither these nor
// the removal of old generations touch them.
func TestForeignFilesInTheHistoryStay(t *testing.T) {
	dir, _ := filled(t, pastOptions)
	in := func(name string) string { return filepath.Join(dir, historyDir, name) }
	foreign := []string{"zzz.log", "1.log", "0000001.snapshot", "+0000001.log", "00000001.log.snapshot", "-0000001.log"}
	for _, name := range foreign {
		if err := os.WriteFile(in(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(in("dir.snapshot"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := openPastStore(t, dir, pastOptions)
	if err := s.Purge(t.Context(), everyKey); err != nil {
		t.Error(err)
	}
	s.stop()
	opts := pastOptions
	opts.History.Max = 1
	s = openPastStore(t, dir, opts)
	if left := kept(t, s.past(t)); len(left) > 0 {
		t.Errorf("%d generations are left, want none", len(left))
	}
	for _, name := range append(foreign, "dir.snapshot") {
		if _, err := os.Lstat(in(name)); err != nil {
			t.Error(err)
		}
	}
}

// TestHistoryThatIsNoDirectoryIsAnError has a link and a file in the place of the directory: reads and purges fail, the
// directory behind the link stays as it is, and the store goes on.
func TestHistoryThatIsNoDirectoryIsAnError(t *testing.T) {
	for kind, put := range map[string]func(to, name string) error{
		"link": os.Symlink,
		"file": func(_, name string) error { return os.WriteFile(name, []byte("x"), 0o600) },
	} {
		dir, _ := filled(t, pastOptions)
		name, elsewhere := filepath.Join(dir, historyDir), filepath.Join(t.TempDir(), "elsewhere")
		if err := errors.Join(os.Rename(name, elsewhere), put(elsewhere, name)); err != nil {
			t.Fatal(err)
		}
		before := modTimes(t, elsewhere)
		opts := pastOptions
		opts.History.Max = 1 // all generations would go
		s := openPastStore(t, dir, opts)
		s.put(t, "pods/0", "new", store.Author{})
		if _, err := stateAt(t, s.past(t), 400); err == nil || !strings.Contains(err.Error(), "is not a directory") {
			t.Errorf("reading with a %s: %v", kind, err)
		}
		if err := s.Purge(t.Context(), everyKey); err == nil || !strings.Contains(err.Error(), "is not a directory") {
			t.Errorf("purging with a %s: %v", kind, err)
		}
		s.put(t, "pods/0", "newer", store.Author{})
		s.stop()
		if after := modTimes(t, elsewhere); !maps.Equal(before, after) {
			t.Errorf("%d files behind the %s, were %d", len(after), kind, len(before))
		}
	}
}

// grep returns the files below a directory that have a text.
func grep(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestPurgeLeavesNoByte purges a key from all generations: no file has its values, all other states stay, and so do
// times and authors. The present value of a key that exists stays, too.
func TestPurgeLeavesNoByte(t *testing.T) {
	for _, deleted := range []bool{true, false} {
		dir := t.TempDir()
		s := openPastStore(t, dir, pastOptions)
		for i := range 300 {
			s.put(t, "secrets/a", fmt.Sprint("password-", i), store.Author{User: "u"})
			s.put(t, fmt.Sprint("pods/", i%5), strings.Repeat("x", 100)+fmt.Sprint(i), store.Author{User: "u"})
		}
		before := writesOf(t, s.past(t), store.PastQuery{To: s.Revision(), Match: keyIs("pods/1")})
		if deleted {
			s.put(t, "secrets/a", "", store.Author{User: "u"})
		} else {
			s.put(t, "secrets/a", "present", store.Author{User: "u"})
		}
		if found := grep(t, dir, "password-"); len(found) < 4 {
			t.Fatalf("only %q have the value before", found)
		}
		times := modTimes(t, filepath.Join(dir, historyDir))
		if err := s.Purge(t.Context(), keyIs("secrets/a")); err != nil {
			t.Fatal(err)
		}
		if found := grep(t, dir, "password-"); len(found) > 0 {
			t.Errorf("%q still have the value", found)
		}
		for name, at := range modTimes(t, filepath.Join(dir, historyDir)) {
			if was, ok := times[name]; ok && !was.Equal(at) {
				t.Errorf("%s counts as written at %v, not %v", name, at, was)
			}
		}
		if after := writesOf(t, s.past(t), store.PastQuery{To: s.Revision(), Match: keyIs("pods/1")}); !slices.Equal(before, after) {
			t.Errorf("writes of another key: %d, want %d", len(after), len(before))
		}
		own := writesOf(t, s.past(t), store.PastQuery{To: s.Revision(), Match: keyIs("secrets/a")})
		if len(own) != 301 || !strings.HasSuffix(own[10], ` secrets/a ""->"" by u`) {
			t.Errorf("%d writes of the key, such as %s", len(own), own[10])
		}
		s.put(t, "secrets/b", "x", store.Author{})
		s.stop()
		s = openPastStore(t, dir, pastOptions)
		rec, err := s.Get("secrets/a")
		if deleted == (err == nil) {
			t.Errorf("after the purge there is %v, %v", rec, err)
		}
		if _, err := stateAt(t, s.past(t), 100); err != nil {
			t.Error(err)
		}
		s.stop()
	}
}

// TestPresentValuesStayReadableAfterPurge purges all values: the state from the newest write on is whole, before and
// after the next write. A write between has no value.
func TestPresentValuesStayReadableAfterPurge(t *testing.T) {
	s := openPastStore(t, t.TempDir(), pastOptions)
	s.put(t, "pods/a", "first", store.Author{})
	old := s.put(t, "pods/b", "second", store.Author{})
	now := s.put(t, "pods/a", "third", store.Author{})
	want := map[string]string{"pods/a": "third", "pods/b": "second"}
	for range 2 { // the second time, no segment after the oldest snapshot has an entry
		if err := s.Purge(t.Context(), everyKey); err != nil {
			t.Fatal(err)
		}
		for _, at := range []store.Revision{now, now + 1} {
			if got, err := stateAt(t, s.past(t), at); err != nil || !maps.Equal(got, want) {
				t.Errorf("at %d after a purge: %v, %v, want %v", at, got, err, want)
			}
		}
		if got, err := stateAt(t, s.past(t), old); err != nil || got["pods/a"] != "" {
			t.Errorf("at %d after a purge: %v, %v", old, got, err)
		}
	}
	later := s.put(t, "pods/b", "fourth", store.Author{})
	for at, b := range map[store.Revision]string{now: "second", later: "fourth"} {
		want["pods/b"] = b
		if got, err := stateAt(t, s.past(t), at); err != nil || !maps.Equal(got, want) {
			t.Errorf("at %d: %v, %v, want %v", at, got, err, want)
		}
	}
}

// TestWritesDoNotWaitForAPurge stops a purge while it reads the history: writes, folds and the begin of another purge go
// on, and both purges end.
func TestWritesDoNotWaitForAPurge(t *testing.T) {
	b, err := Open(t.TempDir(), pastOptions)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Load(t.Context(), func(store.Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
	d := b.(*directory)
	revision := store.Revision(0)
	write := func() error {
		revision++
		e := store.Entry{Key: "secrets/a", Data: bytes.Repeat([]byte("password"), 100), Created: 1, Revision: revision}
		return b.Commit(t.Context(), store.Batch{Entries: []store.Entry{e}})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	reads, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	var once sync.Once
	stopped := func([]byte) bool {
		once.Do(func() { close(reads); <-goOn })
		return true
	}
	ended := func(err error) { done <- err }
	if err := d.Purge(t.Context(), stopped, ended); err != nil {
		t.Fatal(err)
	}
	<-reads
	wrote := make(chan error, 1)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) {
		err := d.Purge(t.Context(), everyKey, ended)
		for range 30 { // several segments
			err = errors.Join(err, write())
		}
		wrote <- err
	})
	select {
	case err := <-wrote:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("writes wait for the purge")
	}
	if len(done) > 0 {
		t.Error("a purge ended before it was done")
	}
	close(goOn)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	g.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func modTimes(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	out := map[string]time.Time{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = info.ModTime()
	}
	return out
}

// TestRewriteReachesHistory writes all records in another form: no file has the earlier one.
func TestRewriteReachesHistory(t *testing.T) {
	dir, _ := filled(t, pastOptions)
	opts := pastOptions
	opts.Reseal = func(_ string, data []byte) []byte {
		if data[0] == '!' {
			return data
		}
		return append([]byte("!"), bytes.ReplaceAll(data, []byte("x"), []byte("y"))...)
	}
	done := make(chan error, 1)
	opts.Rewritten = func(err error) { done <- err }
	s := openPastStore(t, dir, opts)
	s.Rewrite()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if found := grep(t, dir, "xxx"); len(found) > 0 {
		t.Errorf("%q have the earlier form", found)
	}
	if got, err := stateAt(t, s.past(t), 50); err != nil || len(got) != 7 || !strings.HasPrefix(got["pods/1"], "!yyy") {
		t.Errorf("at 50: %v, %v", got, err)
	}
}

// TestOldGenerationsGo removes generations by age and by size, oldest first; what is left can be read.
func TestOldGenerationsGo(t *testing.T) {
	dir, states := filled(t, pastOptions)
	all := kept(t, newArchive(dir, pastOptions))
	old := time.Now().Add(-2 * time.Hour)
	for _, g := range all[:2] {
		for _, name := range g.names {
			if err := os.Chtimes(filepath.Join(dir, historyDir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := openPastStore(t, dir, pastOptions)
	span, err := s.past(t).Span(t.Context())
	if err != nil || span.From == 0 {
		t.Fatalf("%+v, %v", span, err)
	}
	if left := kept(t, s.past(t)); len(left) != len(all)-2 {
		t.Errorf("%d of %d generations are left", len(left), len(all))
	}
	if _, err := stateAt(t, s.past(t), span.From-1); !errors.Is(err, store.ErrExpired) {
		t.Errorf("before the first revision: %v", err)
	}
	if got, err := stateAt(t, s.past(t), span.From); err != nil || !maps.Equal(got, states[span.From]) {
		t.Errorf("at the first revision: %v", err)
	}
	s.stop()
	opts := pastOptions
	opts.History.Max = 20 << 10
	s = openPastStore(t, dir, opts)
	size := int64(0)
	for _, g := range kept(t, s.past(t)) {
		size += g.size
	}
	if size == 0 || size > opts.History.Max {
		t.Errorf("the history has %d bytes, want at most %d", size, opts.History.Max)
	}
}

// TestLogGoesBackToTheOlderFormat turns the history off: the next segments are ones that older programs read.
func TestLogGoesBackToTheOlderFormat(t *testing.T) {
	dir, _ := filled(t, pastOptions)
	opts := pastOptions
	opts.History = History{}
	folded := make(chan error, 1)
	opts.Rewritten = func(err error) { folded <- err }
	s := openPastStore(t, dir, opts)
	s.put(t, "pods/0", "new", store.Author{User: "u"})
	s.Rewrite()
	if err := <-folded; err != nil {
		t.Fatal(err)
	}
	s.stop()
	names, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !isStoreFile(filepath.Base(name)) {
			continue
		}
		if h, err := headerOf(name); err != nil || h.version != plainVersion {
			t.Errorf("%s has version %d, %v", name, h.version, err)
		}
	}
}
