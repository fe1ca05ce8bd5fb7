package localdisk_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/node/localdisk"
)

func mkdir(t *testing.T, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestVolumesMoveWithTheDirectory has volumes of the provisioner that were made when their directory had another path, and others that
// look like these.
func TestVolumesMoveWithTheDirectory(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "B", "volumes")
	here := mkdir(t, root, volume)
	const gone, other = "pvc-00000000-89ab-cdef-0123-456789abcdef", "pvc-11111111-89ab-cdef-0123-456789abcdef"
	there := mkdir(t, dir, "C", "volumes", other)
	before := filepath.Join(dir, "A", "volumes", volume)
	for _, tt := range []struct {
		what, by, name, path, want string
	}{
		{"not moved", localdisk.Provisioner, volume, here, here},
		{"moved", localdisk.Provisioner, volume, before, here},
		{"moved, and removed", localdisk.Provisioner, gone, filepath.Join(dir, "A", "volumes", gone), filepath.Join(root, gone)},
		{"left behind", localdisk.Provisioner, other, there, there},
		{"of a user", "", volume, before, before},
		{"of another provisioner", "example.com/local", volume, before, before},
		{"of another name", localdisk.Provisioner, gone, before, before},
		{"of no name of the provisioner", localdisk.Provisioner, "x", "/A/volumes/x", "/A/volumes/x"},
		{"of a name that leads elsewhere", localdisk.Provisioner, "..", "/A/volumes/..", "/A/volumes/.."},
		{"in no directory of volumes", localdisk.Provisioner, volume, "/A/disks/" + volume, "/A/disks/" + volume},
		{"of a simulated node", localdisk.Provisioner, volume, "/" + volume, "/" + volume},
		{"not clean", localdisk.Provisioner, volume, "/A/x/../volumes/" + volume, "/A/x/../volumes/" + volume},
		{"not absolute", localdisk.Provisioner, volume, "A/volumes/" + volume, "A/volumes/" + volume},
	} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: tt.name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": tt.by}}}
		pv.Spec.Local = &corev1.LocalVolumeSource{Path: tt.path}
		if got := localdisk.Path(root, pv); got != tt.want {
			t.Errorf("%s: %s is at %s, want %s", tt.what, tt.path, got, tt.want)
		}
	}
}

func TestMovedVolumesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "B", "volumes")
	agent, here := newAgent(root), mkdir(t, root, volume)
	remove := func(path string, code int) {
		t.Helper()
		if w := request(t, agent, http.MethodDelete, "/sampan/volumes/"+volume+"?path="+url.QueryEscape(path)); w.Code != code {
			t.Errorf("DELETE of %s: %d %s, want %d", path, w.Code, w.Body, code)
		}
	}
	before := filepath.Join(dir, "A", "volumes", volume)
	remove(filepath.Join(dir, "A", "disks", volume), http.StatusConflict)
	remove(filepath.Join(dir, "A", "volumes", "pvc-00000000-89ab-cdef-0123-456789abcdef"), http.StatusConflict)
	if _, err := os.Lstat(here); err != nil {
		t.Errorf("the directory of another path: %v", err)
	}
	remove(before, http.StatusOK)
	if _, err := os.Lstat(here); !os.IsNotExist(err) {
		t.Errorf("the directory that was moved is there: %v", err)
	}
	remove(before, http.StatusOK) // again
	mkdir(t, before)
	remove(before, http.StatusConflict) // it is not below the directory
	if _, err := os.Lstat(before); err != nil {
		t.Errorf("a directory elsewhere: %v", err)
	}
}
