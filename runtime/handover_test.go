package runtime

import (
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/runtime/container"
)

// handed returns a handover of a server to which nothing else refers.
func handed(t *testing.T) *Handover {
	t.Helper()
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := (&Server{listener: l, lock: lock, supervisor: &container.Supervisor{}}).Handover()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestHandedDescriptorsStayOpen collects garbage between a handover and its end.
func TestHandedDescriptorsStayOpen(t *testing.T) {
	h := handed(t)
	for range 3 { // cleanups run after a collection
		goruntime.GC()
	}
	for name, fd := range map[string]int{"listener": h.Listener, "lock": h.Lock} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			t.Errorf("the descriptor of the %s has the flags %d, %v", name, flags, err)
		}
	}
	goruntime.KeepAlive(h)
}
