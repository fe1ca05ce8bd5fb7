package runtime

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/runtime/image"
	"github.com/sampan-io/sampan/runtime/registry"
)

// benchImage is an image of layers with half random content, in files of 1 MB.
type benchImage struct {
	blobs    map[string][]byte
	manifest []byte
}

func newBenchImage(b *testing.B, layers, megabytes int) *benchImage {
	b.Helper()
	m := &benchImage{blobs: map[string][]byte{}}
	var diffs []string
	var list []map[string]any
	random := rand.NewChaCha8([32]byte{})
	for l := range layers {
		plain, packed, err := benchLayer(l, megabytes, random)
		if err != nil {
			b.Fatal(err)
		}
		diffs = append(diffs, fmt.Sprintf("sha256:%x", sha256.Sum256(plain)))
		list = append(list, m.add(packed))
	}
	config, err := json.Marshal(map[string]any{"os": "linux", "architecture": goruntime.GOARCH, "rootfs": map[string]any{"type": "layers", "diff_ids": diffs}})
	if err != nil {
		b.Fatal(err)
	}
	const media = "application/vnd.oci.image.manifest.v1+json"
	if m.manifest, err = json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": media, "config": m.add(config), "layers": list}); err != nil {
		b.Fatal(err)
	}
	return m
}

// benchLayer returns a layer as it is and compressed.
func benchLayer(number, megabytes int, random *rand.ChaCha8) (plain, packed []byte, err error) {
	var archive, out bytes.Buffer
	w := tar.NewWriter(&archive)
	block := make([]byte, 1<<20)
	for f := range megabytes {
		_, _ = random.Read(block[:len(block)/2])
		h := tar.Header{Name: fmt.Sprintf("l%d/f%d", number, f), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(block))}
		if err := w.WriteHeader(&h); err != nil {
			return nil, nil, err
		}
		if _, err := w.Write(block); err != nil {
			return nil, nil, err
		}
	}
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, nil, err
	}
	_, err = z.Write(archive.Bytes())
	err = errors.Join(err, z.Close())
	return archive.Bytes(), out.Bytes(), err
}

func (m *benchImage) add(data []byte) map[string]any {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	m.blobs[digest] = data
	return map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest, "size": len(data)}
}

// ServeHTTP implements [http.Handler]: it is a registry.
func (m *benchImage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "/manifests/") {
		_, _ = w.Write(m.manifest)
		return
	}
	if data, ok := m.blobs[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]; ok {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

// memorySource serves the same image without a network.
type memorySource struct{ m *benchImage }

func (s memorySource) Manifest(context.Context, string, int64) ([]byte, string, error) {
	return s.m.manifest, "", nil
}

func (s memorySource) Blob(_ context.Context, digest string, _ int64, to io.Writer) error {
	_, err := to.Write(s.m.blobs[digest])
	return err
}

// BenchmarkPull compares a pull over HTTP with its two parts: copying the layers over HTTP to files, and a pull without a
// network, which is what unpacking takes.
func BenchmarkPull(b *testing.B) {
	m := newBenchImage(b, 8, 128)
	s := httptest.NewServer(m)
	defer s.Close()
	name := strings.TrimPrefix(s.URL, "http://") + "/a/b:1"
	store := func(b *testing.B) *image.Store {
		b.Helper()
		dir, err := os.MkdirTemp("", "pull")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
		store, err := image.Open(image.Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		return store
	}
	b.Run("copy", func(b *testing.B) {
		for range b.N {
			for digest := range m.blobs {
				res, err := http.Get(s.URL + "/v2/a/b/blobs/" + digest)
				if err != nil {
					b.Fatal(err)
				}
				f, err := os.Create(b.TempDir() + "/f")
				if err != nil {
					b.Fatal(err)
				}
				_, err = io.Copy(f, res.Body)
				if err := errors.Join(err, f.Sync(), f.Close(), res.Body.Close()); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("unpack", func(b *testing.B) {
		for range b.N {
			if _, err := store(b).Pull(b.Context(), name, image.Platform{}, memorySource{m}, &image.Progress{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pull", func(b *testing.B) {
		for range b.N {
			r, err := registry.New(registry.Options{}).Repository(image.Repository(name), registry.Credentials{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := store(b).Pull(b.Context(), name, image.Platform{}, r, &image.Progress{}); err != nil {
				b.Fatal(err)
			}
			r.Close()
		}
	})
}
