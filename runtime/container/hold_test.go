package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

// supervised is a supervisor with a store that finds what an earlier one of the same directory has left.
func supervised(t *testing.T, dir string) *Supervisor {
	t.Helper()
	k, err := New(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	store, kept, err := openStore(dir, func(f func() error) error { return f() })
	if err != nil {
		t.Fatal(err)
	}
	k.store = store
	k.takeHeld(kept)
	for name := range kept {
		t.Errorf("%s is left", name)
	}
	return k
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestNamespacesAreHeldWithoutMounts(t *testing.T) {
	nstest.NeedRoot(t)
	state, pod := t.TempDir(), t.TempDir()
	t.Cleanup(func() {
		if err := EndStore(state); err != nil {
			t.Error(err)
		}
	})
	k := supervised(t, state)
	pins, err := k.Pin("pod", pod, PinSpec{Net: true, IPC: true, UTS: true, Hostname: "inside"})
	if err != nil {
		t.Fatal(err)
	}
	if pins != PinsOf(pod, PinSpec{Net: true, IPC: true, UTS: true}) {
		t.Errorf("pins are %v", pins)
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil || strings.Contains(string(mounts), pod) {
		t.Errorf("namespaces are in the mount table, %v", err)
	}
	before := map[string]uint64{}
	for _, name := range pins.names() {
		before[name] = inode(t, filepath.Join(pod, name))
		if before[name] == inode(t, "/proc/self/ns/"+name) {
			t.Errorf("%s is the namespace of this process", name)
		}
	}

	for range 2 { // the process is killed, and the next one finds them
		k.store.close()
		closeFiles(k.hold("pod", nil))
		k = supervised(t, state)
		if err := k.Repin("pod", pins); err != nil {
			t.Fatal(err)
		}
		for name, want := range before {
			if got := inode(t, filepath.Join(pod, name)); got != want {
				t.Errorf("%s is %d, was %d", name, got, want)
			}
		}
		k.ForgetPods(func(id string) bool { return id == "pod" })
	}

	// The process that kept them is killed, too.
	k.store.close()
	closeFiles(k.hold("pod", nil))
	if err := EndStore(state); err != nil {
		t.Fatal(err)
	}
	k = supervised(t, state)
	if err := k.Repin("pod", pins); err == nil {
		t.Error("namespaces that are lost were found")
	}
	if _, err := os.Lstat(pins.Net); err == nil {
		t.Error("a link to what is not the pod's is left")
	}
	if err := k.Unpin("pod", pins); err != nil {
		t.Error(err)
	}

	// An earlier version has used mounts: they stay.
	old, err := Pin(pod, PinSpec{UTS: true})
	if err != nil {
		t.Fatal(err)
	}
	want := inode(t, old.UTS)
	if err := k.Repin("old", old); err != nil || inode(t, old.UTS) != want {
		t.Errorf("a pinned namespace: %v", err)
	}
	if err := k.Unpin("old", old); err != nil {
		t.Error(err)
	}

	// What was cut off is given up.
	if _, err := k.Pin("half", pod, PinSpec{UTS: true}); err != nil {
		t.Fatal(err)
	}
	k.ForgetPods(func(string) bool { return false })
	if len(k.held) > 0 || len(k.store.kept) > 0 {
		t.Errorf("held are %v, kept %v", k.held, k.store.kept)
	}
	k.store.close()
}

// TestFullStoreLeavesMounts has a store that takes no descriptors.
func TestFullStoreLeavesMounts(t *testing.T) {
	nstest.NeedRoot(t)
	state, pod := t.TempDir(), t.TempDir()
	k := supervised(t, state)
	t.Cleanup(func() {
		if err := EndStore(state); err != nil {
			t.Error(err)
		}
	})
	k.store.close()
	pins, err := k.Pin("pod", pod, PinSpec{IPC: true, UTS: true})
	if err != nil {
		t.Fatal(err)
	}
	if isLink(pins.UTS) || inode(t, pins.UTS) == inode(t, "/proc/self/ns/uts") || len(k.held) > 0 {
		t.Errorf("held are %v, want mounts", k.held)
	}
	if err := k.Unpin("pod", pins); err != nil {
		t.Error(err)
	}
}
