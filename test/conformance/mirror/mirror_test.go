package mirror

import (
	"archive/tar"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/test/conformance/images"
)

func TestMirrorServesALayout(t *testing.T) {
	dir := t.TempDir()
	l, err := images.NewLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := l.Layer(func(w *tar.Writer) error {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Image([]string{"registry.example/a/b:v1"}, images.Config{Cmd: []string{"sh"}}, layer); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(m)
	defer s.Close()
	get := func(path string) (status int, body, mediaType, digest string) {
		res, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(data), res.Header.Get("Content-Type"), res.Header.Get("Docker-Content-Digest")
	}
	status, byTag, mediaType, digest := get("/v2/a/b/manifests/v1")
	if status != http.StatusOK || mediaType != images.ManifestType || !strings.Contains(byTag, layer.Digest) {
		t.Errorf("manifest: %d, %s, %s", status, mediaType, byTag)
	}
	if _, byDigest, _, _ := get("/v2/a/b/manifests/" + digest); byDigest != byTag {
		t.Errorf("manifest by digest: %s", byDigest)
	}
	if status, blob, _, _ := get("/v2/a/b/blobs/" + layer.Digest); status != http.StatusOK || int64(len(blob)) != layer.Size {
		t.Errorf("blob: %d, %d bytes", status, len(blob))
	}
	for _, path := range []string{"/v2/a/b/manifests/v2", "/v2/a/c/manifests/v1", "/v2/a/b/blobs/sha256:..", "/v2/a/b/blobs/v1", "/v2/a/b/tags/list", "/"} {
		if status, _, _, _ := get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}

	to := t.TempDir()
	if err := m.Configure(to, "192.0.2.1:5000"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(to, "registry.example", "hosts.toml"))
	if err != nil || !strings.Contains(string(text), `[host."http://192.0.2.1:5000"]`) {
		t.Errorf("%s, %v", text, err)
	}
}
