package container

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

func TestFDStoreKeepsTheNewest(t *testing.T) {
	nstest.NeedRoot(t)
	dir := t.TempDir()
	direct := func(f func() error) error { return f() }
	s, found, err := openStore(dir, direct)
	if err != nil || len(found) > 0 {
		t.Fatalf("a new store: %v, %v", found, err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := EndStore(dir); err != nil {
				t.Error(err)
			}
		}
	})
	pipes := map[string]*os.File{} // the reading ends
	pipe := func(name string) []*os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		pipes[name] = r
		return []*os.File{w}
	}
	const many = 300 // the store removes what does not count several times
	for i := range many {
		name := fmt.Sprint("c", i)
		files := pipe(name)
		if err := s.put(name, files); err != nil {
			t.Fatal(err)
		}
		if i%10 != 0 {
			s.drop(name)
		}
		defer files[0].Close()
	}
	second := pipe("second")
	defer second[0].Close()
	if err := s.replace("c10", second); err != nil {
		t.Fatal(err)
	}
	if err := s.replace("gone", second); err != nil {
		t.Fatal(err)
	}
	if s.queued != many/10 {
		t.Errorf("%d messages are in the queue after a replacement, want %d", s.queued, many/10)
	}
	for range 3 { // each finds the same
		s.close()
		if s, found, err = openStore(dir, direct); err != nil || len(found) != many/10 {
			t.Fatalf("the store has %d names, %v, want %d", len(found), err, many/10)
		}
		if _, err := unix.Write(found["c10"][0], []byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := pipes["second"].Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("the descriptor that replaced another one: %d %v", n, err)
		}
		for _, fds := range found {
			closeAll(fds)
		}
	}
	s.trim()
	if s.queued > storeSlack {
		t.Errorf("%d messages are in the queue, and none counts", s.queued)
	}
	s.close()
	// Without its process a new store is started.
	if err := EndStore(dir); err != nil {
		t.Fatal(err)
	}
	if s, found, err = openStore(dir, direct); err != nil || len(found) > 0 {
		t.Errorf("after its end: %v, %v", found, err)
	}
	s.close()
}
