package quarantine_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/quarantine"
)

func pod(size int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "large", UID: "u", Generation: 1, ResourceVersion: "5"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Args: []string{strings.Repeat("x", size)}}}},
	}
}

func open(t *testing.T, dir string) *quarantine.Quarantine {
	t.Helper()
	q, err := quarantine.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func files(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestUnendedWorkSetsObjectAside(t *testing.T) {
	dir, large := t.TempDir(), pod(quarantine.LeastSize)
	if _, ok := open(t, dir).Begin("scheduler", large); !ok {
		t.Fatal("a new object is set aside")
	}
	q := open(t, dir) // the process has ended
	var said []string
	q.OnAside(func(part string, o metav1.Object) { said = append(said, part+" "+o.GetName()) })
	later := large.DeepCopy() // controllers may write its status
	later.ResourceVersion, later.Status.Phase = "9", corev1.PodPending
	for range 3 {
		if _, ok := q.Begin("scheduler", later); ok {
			t.Fatal("the object that ended the process is worked on again")
		}
	}
	if len(said) != 1 || said[0] != "scheduler large" {
		t.Errorf("reported %q, want once", said)
	}
	end, ok := q.Begin("node agent", large)
	if !ok {
		t.Fatal("another part leaves the object alone")
	}
	end()
	if _, ok := open(t, dir).Begin("scheduler", large); ok {
		t.Error("one more start has lifted it")
	}
	for what, change := range map[string]func(p *corev1.Pod){
		"spec":        func(p *corev1.Pod) { p.Generation++ },
		"annotations": func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
		"deletion":    func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) },
		"another":     func(p *corev1.Pod) { p.UID = "v" },
	} {
		q, changed := open(t, dir), large.DeepCopy()
		change(changed)
		end, ok := q.Begin("scheduler", changed)
		if !ok {
			t.Errorf("%s: the change has not lifted it", what)
			continue
		}
		end()
		if n := files(t, dir); n != 0 {
			t.Errorf("%s: %d files are left", what, n)
		}
		if _, ok := open(t, dir).Begin("scheduler", large); !ok { // for the next change
			t.Errorf("%s: it is set aside without a mark", what)
		}
	}
}

func TestSmallObjectsAndEndedWorkLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir)
	if end, ok := q.Begin("scheduler", pod(10)); !ok || files(t, dir) != 0 {
		t.Errorf("a small object has a mark: %v, %d files", ok, files(t, dir))
	} else {
		end()
	}
	end, ok := q.Begin("scheduler", pod(quarantine.LeastSize))
	if !ok || files(t, dir) != 1 {
		t.Fatalf("a large object has %d marks", files(t, dir))
	}
	end()
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
	small := pod(10)
	if got := testing.AllocsPerRun(100, func() {
		end, _ := q.Begin("scheduler", small)
		end()
	}); got > 0 {
		t.Errorf("%v allocations for a small object, want none", got)
	}
	var none *quarantine.Quarantine
	if _, ok := none.Begin("scheduler", pod(quarantine.LeastSize)); !ok {
		t.Error("nil sets aside")
	}
}

func TestBrokenMarksAreRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a.mark", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

func TestMarksOfDeletedObjectsAreDropped(t *testing.T) {
	dir, large := t.TempDir(), pod(quarantine.LeastSize)
	leave := func() *quarantine.Quarantine {
		t.Helper()
		for _, part := range []string{"scheduler", "node agent"} {
			if _, ok := open(t, dir).Begin(part, large); !ok {
				t.Fatal("it is set aside")
			}
		}
		return open(t, dir)
	}
	leave().Forget("scheduler", "default", "large")
	if n := files(t, dir); n != 1 {
		t.Errorf("%d files are left, want that of the node agent", n)
	}
	open(t, dir).Forget("node agent", "default", "another")
	if n := files(t, dir); n != 1 {
		t.Errorf("%d files are left after another object was deleted", n)
	}
	open(t, dir).Forget("node agent", "default", "large")
	var asked []string
	q := leave()
	q.Sweep(func(kind, namespace, name string, uid types.UID) bool {
		asked = append(asked, fmt.Sprint(kind, " ", namespace, "/", name, " ", uid))
		return true
	})
	if n := files(t, dir); n != 2 || len(asked) != 2 || asked[0] != "v1.Pod default/large u" {
		t.Errorf("%d files are left of objects that exist; asked for %q", n, asked)
	}
	q.Sweep(func(string, string, string, types.UID) bool { return false })
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files are left of objects that do not exist", n)
	}
	if end, ok := q.Begin("scheduler", large); !ok {
		t.Error("what was dropped is set aside")
	} else {
		end()
	}
}
