package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/node/volume"
)

func TestVolumeIsPreparedOnce(t *testing.T) {
	root := t.TempDir()
	var calls []bool
	take := func(u *volume.Uses, pod types.UID, name, path string, fail error) {
		t.Helper()
		if err := u.Take(t.Context(), pod, name, path, func(shared bool) error { calls = append(calls, shared); return fail }); !errors.Is(err, fail) {
			t.Fatal(err)
		}
	}
	want := func(n int, shared bool) {
		t.Helper()
		if len(calls) != n || calls[n-1] != shared {
			t.Fatalf("calls of prepare with shared=%v, want %d, the last with %v", calls, n, shared)
		}
	}
	u := volume.NewUses(root)
	take(u, "one", "v", "/disk", errors.New("no"))
	want(1, false)
	take(u, "one", "v", "/disk", nil) // once more, because it has failed
	want(2, false)
	take(u, "one", "v", "/disk", nil)
	want(2, false)
	u = volume.NewUses(root) // the agent has been restarted
	take(u, "one", "v", "/disk", nil)
	want(2, false)
	take(u, "two", "v", "/disk", nil)
	want(3, true)
	take(u, "two", "w", "/other", nil)
	want(4, false)
	for _, pod := range []string{"one", "two"} { // their volumes have been unmounted
		if err := os.RemoveAll(filepath.Join(root, pod)); err != nil {
			t.Fatal(err)
		}
	}
	take(u, "three", "v", "/disk", nil)
	want(5, false)
}

func TestPodsTakeOneVolumeInTurn(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		u, inside, shares := volume.NewUses(root), 0, 0
		release := make(chan struct{})
		for _, pod := range []types.UID{"a", "b", "c"} {
			go func() {
				err := u.Take(t.Context(), pod, "v", "/disk", func(shared bool) error {
					inside++
					<-release
					if shared {
						shares++
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
		}
		for want := 1; want <= 3; want++ {
			synctest.Wait()
			if inside != want {
				t.Errorf("%d pods have been let in, want %d", inside, want)
			}
			if want == 2 {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := u.Take(ctx, "d", "v", "/disk", func(bool) error { return nil }); !errors.Is(err, context.Canceled) {
					t.Errorf("a cancelled wait returned %v", err)
				}
				if err := u.Take(t.Context(), "d", "v", "/another", func(bool) error { return nil }); err != nil {
					t.Errorf("another volume waited: %v", err)
				}
			}
			release <- struct{}{}
		}
		synctest.Wait()
		if shares != 2 {
			t.Errorf("%d pods were the first, want 1", 3-shares)
		}
	})
}
