package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestNamedSelectsByLastSegment(t *testing.T) {
	names := []string{
		"registry.example/e2e/agnhost:2", "registry.example/e2e/agnhost:1", "registry.example/agnhost/other:1", private + "agnhost:2",
	}
	want := []string{"registry.example/e2e/agnhost:2", "registry.example/e2e/agnhost:1"}
	if got := named(names, "agnhost"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDebianGetsTheUsersOfTheSuite(t *testing.T) {
	var in, out bytes.Buffer
	w := files{tar.NewWriter(&in)}
	if err := errors.Join(w.dirs(".", "./etc"), w.text("./etc/passwd", "root\n"), w.link("./bin", "usr/bin"), w.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "debian.tar")
	if err := os.WriteFile(file, in.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	to := tar.NewWriter(&out)
	if err := errors.Join(Sources{Debian: file}.debian(files{to}), to.Close()); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(data) + h.Linkname
	}
	if want := map[string]string{"etc/": "", "etc/passwd": "root\n" + moreUsers, "bin": "usr/bin"}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLayoutHasDigestsOfItsContents(t *testing.T) {
	dir := t.TempDir()
	l, err := NewLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := l.Layer(func(w *tar.Writer) error {
		f := files{w}
		if err := f.dirs("tmp"); err != nil {
			return err
		}
		return f.text("hello", "world")
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Image([]string{"registry.example/a:1", "registry.example/a:2"}, Config{}, layer); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	index, err := Read(dir)
	if err != nil || len(index.Manifests) != 2 || index.Manifests[1].Annotations[NameAnnotation] != "registry.example/a:2" {
		t.Fatalf("index %+v, %v", index, err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "blobs", "sha256"))
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d blobs, %v", len(entries), err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256", e.Name()))
		h := sha256.New()
		_, _ = h.Write(data)
		if got := digest(h); err != nil || got != "sha256:"+e.Name() {
			t.Errorf("blob %s has the digest %s, %v", e.Name(), got, err)
		}
	}
	var manifest struct{ Layers []Descriptor }
	data, err := os.ReadFile(BlobFile(dir, index.Manifests[0].Digest))
	if err == nil {
		err = json.Unmarshal(data, &manifest)
	}
	if err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("manifest %s, %v", data, err)
	}
	f, err := os.Open(BlobFile(dir, manifest.Layers[0].Digest))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if want := []string{"tmp/", "hello"}; !slices.Equal(names, want) {
		t.Errorf("layer has %v, want %v", names, want)
	}
}
