package volume_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/volume"
)

func mounting(mounts ...corev1.VolumeMount) corev1.Container {
	return corev1.Container{VolumeMounts: mounts}
}

func TestMountPointsBelowReadOnlyVolumes(t *testing.T) {
	at := func(name, path string) corev1.VolumeMount { return corev1.VolumeMount{Name: name, MountPath: path} }
	for _, tt := range []struct {
		name string
		spec corev1.PodSpec
		file string // in the volume
		want string // directories in the volume
	}{
		{"nothing below", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/etc/foo"), at("e", "/etc/foobar"))}}, "", ""},
		{"one below", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/etc/foo"), at("e", "/etc/foo/sub"))}}, "", "sub"},
		{"below the token", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/var/run/secrets"), at("t", "/var/run/secrets/kubernetes.io/serviceaccount"))}}, "", "kubernetes.io kubernetes.io/serviceaccount"},
		{"twice below: the second is in another volume", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/d"), at("e", "/d/a/b"), at("f", "/d/a/b/c"))}}, "", "a a/b"},
		{"names with a common beginning", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/d"), at("e", "/d/n"), at("f", "/d/n-x/y"), at("g", "/d/n.x"))}}, "", "n n-x n-x/y n.x"},
		{"unclean paths", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/d/"), at("e", "//d/./n/"))}}, "", "n"},
		{"other containers", corev1.PodSpec{
			InitContainers:      []corev1.Container{mounting(at("v", "/d"), at("e", "/d/i"))},
			Containers:          []corev1.Container{mounting(at("v", "/d")), mounting(at("e", "/d/other"))},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{VolumeMounts: []corev1.VolumeMount{at("v", "/d"), at("e", "/d/x")}}}},
		}, "", "i x"},
		{"two mounts of the volume", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/a"), at("v", "/b"), at("e", "/a/x"), at("e", "/b/y"))}}, "", "x y"},
		{"a directory for what would be a file", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/d"), at("e", "/d/f"))}}, "f", "f"},
		{"a part over a file", corev1.PodSpec{Containers: []corev1.Container{mounting(at("v", "/d"), corev1.VolumeMount{Name: "e", MountPath: "/d/f", SubPath: "g"})}}, "f", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, p := t.TempDir(), volume.Payload{}
			if tt.file != "" {
				p[tt.file] = volume.File{Mode: 0o600}
			}
			for range 2 { // as an update does
				if err := volume.MakeMountPoints(dir, &tt.spec, "v", p); err != nil {
					t.Fatal(err)
				}
				if _, err := volume.Write(dir, p, -1); err != nil {
					t.Fatal(err)
				}
				p["other"] = volume.File{Mode: 0o600}
			}
			var got []string
			for _, path := range must(filepath.Glob(filepath.Join(dir, "[^.]*")))(t) {
				got = append(got, directories(t, dir, path)...)
			}
			if want := strings.Fields(tt.want); !slices.Equal(got, want) {
				t.Errorf("directories %q, want %q", got, want)
			}
		})
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// directories returns the paths of the directories at path and below, relative to dir. Links are none.
func directories(t *testing.T, dir, path string) (list []string) {
	t.Helper()
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return nil
	}
	list = append(list, must(filepath.Rel(dir, path))(t))
	for _, e := range must(os.ReadDir(path))(t) {
		list = append(list, directories(t, dir, filepath.Join(path, e.Name()))...)
	}
	return list
}

// TestMountPointsStay has a volume that changes while containers have mounts in it: removing a directory would unmount them.
func TestMountPointsStay(t *testing.T) {
	dir := t.TempDir()
	spec := &corev1.PodSpec{Containers: []corev1.Container{mounting(
		corev1.VolumeMount{Name: "v", MountPath: "/d"}, corev1.VolumeMount{Name: "e", MountPath: "/d/n"},
	)}}
	if err := volume.MakeMountPoints(dir, spec, "v", nil); err != nil {
		t.Fatal(err)
	}
	before := must(os.Stat(filepath.Join(dir, "n")))(t)
	for _, files := range []map[string]string{{"a": "1"}, {"b": "1"}, {}, {"n": "a key of this name"}} {
		if _, err := volume.Write(dir, payload(files), -1); err != nil {
			t.Fatal(err)
		}
		if now, err := os.Lstat(filepath.Join(dir, "n")); err != nil || !os.SameFile(before, now) {
			t.Fatalf("after %v the mount point is another one: %v", files, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "b")); err == nil {
		t.Error("the file of an earlier payload is still there")
	}
}

func TestUsedVolumes(t *testing.T) {
	spec := &corev1.PodSpec{
		InitContainers:      []corev1.Container{mounting(corev1.VolumeMount{Name: "init"})},
		Containers:          []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "main"}}, VolumeDevices: []corev1.VolumeDevice{{Name: "disk"}}}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{VolumeMounts: []corev1.VolumeMount{{Name: "late"}}}}},
	}
	used := volume.Used(spec)
	for _, name := range []string{"init", "main", "disk", "late"} {
		if !used[name] {
			t.Errorf("%s is not used", name)
		}
	}
	if len(used) != 4 {
		t.Errorf("used are %v", used)
	}
}
