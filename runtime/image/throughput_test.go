package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// web is a repository that is reached over HTTP.
type web struct {
	memory
	url string
}

// Blob implements [Source] without what package registry has for registries that fail.
func (w *web) Blob(ctx context.Context, digest string, _ int64, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/"+digest, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{resp.Body}, make([]byte, 256<<10))
	return err
}

// A bigLayer is a layer of bigImage.
type bigLayer struct {
	tar, blob string // digests
	size      int64
}

// bigImage serves an image of about a gigabyte: the sources and programs of Go, four times in eight layers.
func bigImage(b *testing.B) (*web, []bigLayer) {
	b.Helper()
	const count, copies = 8, 4
	var files []string
	for _, dir := range []string{"src", "pkg/tool", "bin"} {
		err := filepath.WalkDir(filepath.Join(runtime.GOROOT(), dir), func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	served := b.TempDir()
	layers := make([]bigLayer, count)
	g := run.NewGroup(b.Context(), 0)
	for i := range layers {
		g.Go(func(context.Context) {
			// Neighbors in the list are in different layers, so that all have a mixture.
			l, err := writeLayer(served, files, i, count/copies)
			if err != nil {
				b.Error(err)
			}
			layers[i] = l
		})
	}
	g.Wait()
	if b.Failed() {
		b.FailNow()
	}
	s := httptest.NewServer(http.FileServer(http.Dir(served)))
	b.Cleanup(s.Close)
	w := &web{memory{manifests: map[string][]byte{}, types: map[string]string{}, blobs: map[string][]byte{}}, s.URL}
	config := ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}}
	config.RootFS.Type = "layers"
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest}
	m.SchemaVersion = 2
	for _, l := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.Digest(l.tar))
		m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.Digest(l.blob), Size: l.size})
	}
	data, err := json.Marshal(config)
	if err != nil {
		b.Fatal(err)
	}
	m.Config = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.Digest(digestOf(data)), Size: int64(len(data))}
	if err := os.WriteFile(filepath.Join(served, digestOf(data)), data, 0o600); err != nil {
		b.Fatal(err)
	}
	if data, err = json.Marshal(m); err != nil {
		b.Fatal(err)
	}
	w.manifests["1"], w.types["1"] = data, ocispec.MediaTypeImageManifest
	return w, layers
}

// writeLayer writes each nth file, from one on, as a layer.
func writeLayer(dir string, files []string, from, nth int) (bigLayer, error) {
	f, err := os.CreateTemp(dir, "layer")
	if err != nil {
		return bigLayer{}, err
	}
	plain, packed := digest.SHA256.Digester(), digest.SHA256.Digester()
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, packed.Hash()), gzip.BestSpeed)
	if err != nil {
		return bigLayer{}, err
	}
	archive := tar.NewWriter(io.MultiWriter(z, plain.Hash()))
	for i := from % nth; i < len(files); i += nth {
		data, err := os.ReadFile(files[i])
		if err != nil {
			return bigLayer{}, err
		}
		h := &tar.Header{Name: fmt.Sprintf("copy%d%s", from, files[i]), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}
		if err := archive.WriteHeader(h); err != nil {
			return bigLayer{}, err
		}
		if _, err := archive.Write(data); err != nil {
			return bigLayer{}, err
		}
	}
	if err := errors.Join(archive.Close(), z.Close(), f.Sync()); err != nil {
		return bigLayer{}, err
	}
	st, err := f.Stat()
	if err != nil {
		return bigLayer{}, err
	}
	l := bigLayer{tar: plain.Digest().String(), blob: packed.Digest().String(), size: st.Size()}
	return l, errors.Join(f.Close(), os.Rename(f.Name(), filepath.Join(dir, l.blob)))
}

// BenchmarkPull pulls a large image from a server on loopback. The two lower bounds are measured in each round, too: copying the same blobs
// over HTTP into files, and unpacking them when they are there. Each of the three ends with the same sync.
func BenchmarkPull(b *testing.B) {
	from, layers := bigImage(b)
	took, worked := map[string][]time.Duration{}, map[string][]time.Duration{}
	timed := func(what string, s *Store, f func() error) {
		began, before := time.Now(), processorTime(b)
		err := f()
		if s != nil {
			err = errors.Join(err, s.syncAll())
		}
		took[what] = append(took[what], time.Since(began))
		worked[what] = append(worked[what], processorTime(b)-before)
		if err != nil {
			b.Fatalf("%s: %v", what, err)
		}
	}
	for b.Loop() {
		dir := b.TempDir()
		s, err := Open(Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		blobs := filepath.Join(dir, "copied")
		if err := os.Mkdir(blobs, 0o700); err != nil {
			b.Fatal(err)
		}
		timed("copy", s, func() error { return copyBlobs(b.Context(), from, layers, blobs) })
		timed("unpack", s, func() error {
			tmp, parent := filepath.Join(dir, "unpacked"), ""
			for _, l := range layers {
				room := &budget{limit: 1 << 40}
				if err := s.unpackLayer(b.Context(), tmp, filepath.Join(blobs, l.blob), parent, l.tar, room); err != nil {
					return err
				}
				parent = chainID(parent, l.tar)
			}
			return nil
		})
		timed("pull", nil, func() error { // it ends with a sync
			_, err := s.Pull(b.Context(), "registry.example/big:1", Platform{}, from, &Progress{})
			return err
		})
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
	}
	median := func(of []time.Duration) float64 {
		slices.Sort(of)
		return of[len(of)/2].Seconds()
	}
	b.ReportMetric(0, "ns/op")
	for _, what := range []string{"copy", "unpack", "pull"} {
		b.ReportMetric(median(took[what]), what+"-s")
		b.ReportMetric(median(worked[what]), what+"-cpu-s")
	}
	b.ReportMetric(median(took["pull"])/max(median(took["copy"]), median(took["unpack"])), "pull/slower")
}

// processorTime returns what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// copyBlobs copies as many blobs at a time as a pull does.
func copyBlobs(ctx context.Context, from *web, layers []bigLayer, to string) error {
	g := run.NewGroup(ctx, downloads)
	errs := make([]error, len(layers))
	for i, l := range layers {
		g.Go(func(ctx context.Context) {
			f, err := os.Create(filepath.Join(to, l.blob))
			if err == nil {
				err = errors.Join(from.Blob(ctx, l.blob, l.size, f), f.Close())
			}
			errs[i] = err
		})
	}
	g.Wait()
	return errors.Join(errs...)
}
