package csi

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
)

// TestLateMountIsUnpublished has a driver that mounts a volume after the call was cancelled and the volume unpublished.
func TestLateMountIsUnpublished(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver("disks.sock", nil)
	d.registered(t, "")
	begun := make(chan struct{})
	d.set(func() { d.hang["publish"] = begun })
	v := disk("a")
	if err := errors.Join(r.manager.Hold(v), r.manager.Stage(t.Context(), v)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan error, 1)
	r.group.Go(func(context.Context) { published <- r.manager.Publish(ctx, v, false) })
	<-begun
	cancel()
	if err := <-published; err == nil {
		t.Fatal("a cancelled call succeeded")
	}
	d.set(func() { delete(d.hang, "publish") })
	if err := r.manager.Release(t.Context(), v.Pod); err != nil {
		t.Fatal(err)
	}
	r.unused()
	<-r.pauses // there is nothing yet
	target := r.manager.target(v.Pod, v.Name, false)
	if err := d.mount(target); err != nil {
		t.Fatal(err)
	}
	<-r.pauses
	<-r.pauses // the look after the second pause has ended
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the late mount is still there: %v", err)
	}
	if got, want := d.history(), "stage ../../disk 1, publish ../../disk 1, unpublish ../../disk 1, unstage ../../disk 1, unpublish ../../disk 1"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	if left := r.leftovers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
