package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/node/volumes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// firstID returns the first of a pod's ids on the node; 0 if it has the node's.
func firstID(u *users, uid types.UID) uint32 {
	pod := &corev1.Pod{}
	pod.UID = uid
	got := u.get(pod)
	if got.GetMode() == cri.NamespaceMode_NODE {
		return 0
	}
	return got.GetUids()[0].GetHostId()
}

func TestUsersOfPodsAreSeparate(t *testing.T) {
	f := volumes.New(volumes.Node{RootDir: t.TempDir()})
	u := newUsers(f, 2)
	for _, uid := range []types.UID{"a", "b", "a"} {
		if err := u.allocate(uid); err != nil {
			t.Fatal(err)
		}
	}
	if a, b, c := firstID(u, "a"), firstID(u, "b"), firstID(u, "c"); a != 65536 || b != 131072 || c != 0 {
		t.Errorf("first ids are %d, %d and %d, want 65536, 131072 and 0", a, b, c)
	}
	if err := u.allocate("c"); err == nil {
		t.Error("a third pod got ids, want an error: there are two ranges")
	}

	// A restarted agent gives the ids of a pod to no other.
	u = newUsers(f, 2)
	if damaged, err := u.open(nil); err != nil || damaged != nil {
		t.Fatal(damaged, err)
	}
	u.release("a")
	if err := u.allocate("c"); err != nil {
		t.Fatal(err)
	}
	if b, c := firstID(u, "b"), firstID(u, "c"); b != 131072 || c != 65536 {
		t.Errorf("first ids are %d and %d, want 131072 and 65536", b, c)
	}
}

// TestDamagedUsersConcernOnePod opens files that are empty, foreign, or of two pods at once: the agent starts, a pod
// keeps the range of its sandbox, and no two pods have one range.
func TestDamagedUsersConcernOnePod(t *testing.T) {
	f := volumes.New(volumes.Node{RootDir: t.TempDir()})
	ids := func(host string) string {
		one := `[{"hostId":` + host + `,"containerId":0,"length":65536}]`
		return `{"uidMappings":` + one + `,"gidMappings":` + one + `}`
	}
	for uid, text := range map[types.UID]string{
		"empty": "", "runs": "", "root": ids("0"), "whole": ids("65536"), "whole2": ids("65536"), "stolen": "{",
	} {
		if err := os.MkdirAll(f.Dir(uid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.Dir(uid), "userns"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u := newUsers(f, 8)
	damaged, err := u.open(func(uid types.UID) (uint32, error) {
		return map[types.UID]uint32{"runs": 3 * 65536, "stolen": 65536}[uid], nil
	})
	if err != nil || len(damaged) != 5 || !strings.Contains(damaged[0].Error(), "users of pod ") {
		t.Errorf("damaged files %v, error %v", damaged, err)
	}
	if got := firstID(u, "runs"); got != 3*65536 {
		t.Errorf("the pod that runs has ids from %d on, want those of its sandbox", got)
	}
	seen := map[uint32]types.UID{}
	for _, uid := range []types.UID{"empty", "runs", "root", "whole", "whole2", "stolen"} {
		if err := u.allocate(uid); err != nil {
			t.Fatal(err)
		}
		id := firstID(u, uid)
		if other, twice := seen[id]; twice || id == 0 {
			t.Errorf("pods %s and %s have ids from %d on", uid, other, id)
		}
		seen[id] = uid
	}
	again := newUsers(f, 8)
	if damaged, err := again.open(nil); err != nil || damaged != nil {
		t.Errorf("after the repair: %v, %v", damaged, err)
	}
	if got := firstID(again, "runs"); got != 3*65536 {
		t.Errorf("after the repair the ids of the pod that runs start at %d", got)
	}
}
