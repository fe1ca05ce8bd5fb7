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
	if err := u.open(); err != nil {
		t.Fatal(err)
	}
	u.release("a")
	if err := u.allocate("c"); err != nil {
		t.Fatal(err)
	}
	if b, c := firstID(u, "b"), firstID(u, "c"); b != 131072 || c != 65536 {
		t.Errorf("first ids are %d and %d, want 131072 and 65536", b, c)
	}
}

func TestUsersRefuseForeignFile(t *testing.T) {
	f := volumes.New(volumes.Node{RootDir: t.TempDir()})
	dir := f.Dir("a")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const root = `{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`
	if err := os.WriteFile(filepath.Join(dir, "userns"), []byte(root), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newUsers(f, 2).open(); err == nil || !strings.Contains(err.Error(), "want one range of 65536 ids") {
		t.Errorf("error %v, want one about the range", err)
	}
}
