package disk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/store"
)

// cleanly plays the script and stops as the store does, and returns the only segment and where its records end.
func (s script) cleanly(t *testing.T, dir string) (name string, log []byte, end int64) {
	t.Helper()
	b, err := Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Load(t.Context(), func(store.Entry) error { return nil })
	for _, batch := range s.batches {
		err = errors.Join(err, b.Commit(t.Context(), store.Batch{Entries: batch}))
	}
	d := b.(*directory)
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	log, err = os.ReadFile(d.name)
	if err != nil {
		t.Fatal(err)
	}
	return d.name, log, d.end
}

// TestCleanStopIsNoCrash cuts off and damages the end of a log after a clean stop, at each byte.
func TestCleanStopIsNoCrash(t *testing.T) {
	s := newScript(5)
	name, log, end := s.cleanly(t, t.TempDir())
	check := func(what string, at int64, damaged []byte) {
		t.Helper()
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := load(filepath.Dir(name), quiet)
		if _, ok := errors.AsType[*CorruptError](err); !ok {
			t.Fatalf("%s at %d of %d: %v, want a CorruptError", what, at, end, err)
		}
		if now, err := os.ReadFile(name); err != nil || !slices.Equal(now, damaged) {
			t.Fatalf("%s at %d: the file was changed (%v)", what, at, err)
		}
	}
	for at := range end {
		check("cut", at, log[:at:at])
		if at >= headerSize {
			check("zeros", at, append(log[:at:at], make([]byte, 1000)...))
		}
		flipped := slices.Clone(log)
		flipped[at] ^= 0x41
		check("flip", at, flipped)
	}
	want := s.after[len(s.batches)]
	for what, log := range map[string][]byte{"whole": log, "without the zeros behind": log[:end]} {
		if err := os.WriteFile(name, log, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, err := load(filepath.Dir(name), quiet); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

func TestCleanStopAdvice(t *testing.T) {
	s := newScript(5)
	name, log, end := s.cleanly(t, t.TempDir())
	if err := os.WriteFile(name, log[:end-40], 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := load(filepath.Dir(name), quiet)
	mark := filepath.Join(filepath.Dir(name), closedFile)
	for _, want := range []string{name, "stopped cleanly", "remove " + mark, "Restore"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(filepath.Dir(name), quiet); err != nil {
		t.Errorf("after the advice: %v", err)
	}
}

// TestCrashAfterCleanStop has a run after a clean stop end in a crash: what it left half-written is cut off.
func TestCrashAfterCleanStop(t *testing.T) {
	dir := t.TempDir()
	newScript(3).cleanly(t, dir)
	b, err := Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	last, err := b.Load(t.Context(), func(store.Entry) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	d := b.(*directory)
	var ends []int64
	for i := range 3 {
		ends = append(ends, d.end)
		e := store.Entry{Key: "pods/new", Data: []byte{byte('a' + i)}, Created: 1, Revision: last + store.Revision(i) + 1}
		if err := b.Commit(t.Context(), store.Batch{Entries: []store.Entry{e}}); err != nil {
			t.Fatal(err)
		}
	}
	d.dirty = false // as after a crash
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(d.name)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "pods/new=a", "pods/new=b"} {
		if err := os.WriteFile(d.name, log[:ends[i]+5], 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := load(dir, quiet)
		if err != nil || want != "" && !slices.Contains(got, want) {
			t.Errorf("cut in write %d: %q, %v", i, got, err)
		}
	}
}

// TestMarkOutlivesFolds has newer segments replace the one of the mark, and a newest one that is missing.
func TestMarkOutlivesFolds(t *testing.T) {
	dir, want := foldedDir(t)
	if got, _, err := load(dir, quiet); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%q, %v", got, err)
	}
	logs := files(t, dir, "*.log")
	if err := os.Remove(logs[len(logs)-1]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(dir, quiet); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("without the newest segment: %v", err)
	}
}

// TestDamagedMarkIsIgnored starts with a mark that cannot be read, as without one.
func TestDamagedMarkIsIgnored(t *testing.T) {
	s := newScript(3)
	name, _, _ := s.cleanly(t, t.TempDir())
	mark := filepath.Join(filepath.Dir(name), closedFile)
	data, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "nonsense", strings.Replace(string(data), "end ", "end 9", 1), string(data[:len(data)-3])} {
		if err := os.WriteFile(mark, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := load(filepath.Dir(name), quiet); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
