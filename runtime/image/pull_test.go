package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// memory is a repository in memory.
type memory struct {
	mu        sync.Mutex
	manifests map[string][]byte // by tag and digest
	types     map[string]string
	blobs     map[string][]byte
	fetched   []string                                        // blobs, in the order of requests
	blob      func(digest string, to io.Writer) (bool, error) // may answer instead
}

func (m *memory) Manifest(_ context.Context, reference string, most int64) ([]byte, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.manifests[reference]
	if !ok {
		return nil, "", errors.New("no such manifest")
	}
	if int64(len(data)) > most {
		return nil, "", errors.New("too large")
	}
	return data, m.types[reference], nil
}

func (m *memory) Blob(_ context.Context, digest string, _ int64, to io.Writer) error {
	m.mu.Lock()
	m.fetched = append(m.fetched, digest)
	data, hook := m.blobs[digest], m.blob
	m.mu.Unlock()
	if hook != nil {
		if done, err := hook(digest, to); done {
			return err
		}
	}
	_, err := to.Write(data)
	return err
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(data)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t testing.TB, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(data, nil)
}

// add puts an image of layers into the repository, compressed by the functions, and returns the digest of its manifest.
func (m *memory) add(t testing.TB, tag, media string, layers [][]byte, compress ...func(testing.TB, []byte) []byte) string {
	t.Helper()
	config := configOf(t, layers...)
	doc := ocispec.Manifest{MediaType: media, Config: descriptor(ocispec.MediaTypeImageConfig, digestOf(config), int64(len(config)))}
	doc.SchemaVersion = 2
	if m.blobs == nil {
		m.manifests, m.types, m.blobs = map[string][]byte{}, map[string]string{}, map[string][]byte{}
	}
	m.blobs[digestOf(config)] = config
	for i, l := range layers {
		if i < len(compress) && compress[i] != nil {
			l = compress[i](t, l)
		}
		m.blobs[digestOf(l)] = l
		doc.Layers = append(doc.Layers, descriptor(ocispec.MediaTypeImageLayerGzip, digestOf(l), int64(len(l))))
	}
	return m.put(t, tag, media, doc)
}

func (m *memory) put(t testing.TB, tag, media string, doc any) string {
	t.Helper()
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{tag, digestOf(data)} {
		m.manifests[ref], m.types[ref] = data, media
	}
	return digestOf(data)
}

const pulled = "registry.test/team/web:v1"

func openStore(t testing.TB) *Store {
	t.Helper()
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pullInto(t testing.TB, s *Store, name string, m *memory) (Image, error) {
	t.Helper()
	return s.Pull(t.Context(), name, Platform{}, m, &Progress{})
}

// files lists what is in a store, without the directories of layers.
func files(t testing.TB, s *Store) []string {
	t.Helper()
	var list []string
	for _, kind := range []string{"images", "blobs", "layers", "tmp"} {
		entries, err := os.ReadDir(s.path(kind))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			list = append(list, kind+"/"+e.Name())
		}
	}
	return list
}

func TestPullStoresAnImage(t *testing.T) {
	s, m := openStore(t), &memory{}
	layers := [][]byte{layer(t, dir("bin"), file("bin/x", "one"), file("gone", "x")), layer(t, file("bin/x", "two")), layer(t, file(".wh.gone", ""), file("new", "3"))}
	digest := m.add(t, "v1", dockerManifest, layers, gzipped, zstandard, nil)
	img, err := pullInto(t, s, pulled, m)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(img.Names, []string{pulled}) || !slices.Equal(img.Digests(), []string{"registry.test/team/web@" + digest}) || img.Size == 0 {
		t.Errorf("got %v %v, %d bytes", img.Names, img.Digests(), img.Size)
	}
	if got := img.ImportedRepositories(); len(got) > 0 {
		t.Errorf("imported as %v", got)
	}
	img.Names = append(img.Names, "b.test/x:2", "a.test/x:1", "a.test/x:2", "registry.test/team/web:2")
	if got := img.ImportedRepositories(); !slices.Equal(got, []string{"a.test/x", "b.test/x"}) {
		t.Errorf("with names of archives: imported as %v", got)
	}
	root, err := s.Mount("c", img.ID, filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Unmount("c", root) }()
	if data, err := os.ReadFile(filepath.Join(root, "bin/x")); string(data) != "two" {
		t.Errorf("bin/x: %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(root, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	for _, ref := range []string{pulled, img.ID, img.ID[len(digestPrefix):][:12], "registry.test/team/web@" + digest} {
		if got, err := s.Get(ref); err != nil || got.ID != img.ID {
			t.Errorf("%s: %v", ref, err)
		}
	}
	// The same again, and by digest: nothing is fetched but manifests.
	m.fetched = nil
	for _, name := range []string{pulled, "registry.test/team/web@" + digest} {
		if _, err := pullInto(t, s, name, m); err != nil || len(m.fetched) != 0 {
			t.Errorf("%s: fetched %v: %v", name, m.fetched, err)
		}
	}
	again, err := Open(s.opts)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Get("registry.test/team/web@" + digest); err != nil || got.ID != img.ID {
		t.Errorf("after a restart: %v", err)
	}
}

func TestPullFetchesOnlyMissingLayers(t *testing.T) {
	s, m := openStore(t), &memory{}
	base := layer(t, file("base", "b"))
	m.add(t, "v1", ocispec.MediaTypeImageManifest, [][]byte{base, layer(t, file("a", "1"))}, gzipped, gzipped)
	m.add(t, "v2", ocispec.MediaTypeImageManifest, [][]byte{base, layer(t, file("a", "2"))}, gzipped, gzipped)
	if _, err := pullInto(t, s, pulled, m); err != nil {
		t.Fatal(err)
	}
	m.fetched = nil
	img, err := pullInto(t, s, "registry.test/team/web:v2", m)
	if err != nil || len(m.fetched) != 2 {
		t.Errorf("fetched %v: %v", m.fetched, err)
	}
	if err := s.Remove(pulled); err != nil {
		t.Fatal(err)
	}
	if _, err := s.readChain("", img.Layers[1].ChainID); err != nil {
		t.Errorf("the removal of the other image took a shared layer: %v", err)
	}
	if err := s.Remove(img.ID); err != nil || len(files(t, s)) != 0 {
		t.Errorf("left %v: %v", files(t, s), err)
	}
}

func TestPullsOfTheSameLayersShareThem(t *testing.T) {
	s, m := openStore(t), &memory{}
	base := layer(t, file("base", strings.Repeat("b", 1<<16)))
	for i := range 8 {
		m.add(t, fmt.Sprint("v", i), ocispec.MediaTypeImageManifest, [][]byte{base, layer(t, file("a", fmt.Sprint(i)))}, gzipped, gzipped)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := s.Pull(t.Context(), fmt.Sprint("registry.test/team/web:v", i), Platform{}, m, &Progress{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(m.fetched)
	if n := len(m.fetched); n != len(slices.Compact(m.fetched)) {
		t.Errorf("%d requests, some of them for the same blob", n)
	}
	if len(s.List()) != 8 {
		t.Errorf("%d images", len(s.List()))
	}
}

func TestPullChoosesThePlatform(t *testing.T) {
	s, m := openStore(t), &memory{}
	other := m.add(t, "other", ocispec.MediaTypeImageManifest, [][]byte{layer(t, file("a", "other"))})
	mine := m.add(t, "mine", ocispec.MediaTypeImageManifest, [][]byte{layer(t, file("a", "mine"))})
	entry := func(digest, system, machine string) ocispec.Descriptor {
		d := descriptor(ocispec.MediaTypeImageManifest, digest, 1)
		d.Platform = &ocispec.Platform{OS: system, Architecture: machine}
		return d
	}
	list := []ocispec.Descriptor{entry(other, "unknown", "unknown"), entry(other, "linux", "s390x"), entry(mine, "linux", own.Architecture)}
	index := m.put(t, "v1", ocispec.MediaTypeImageIndex, ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: list})
	img, err := pullInto(t, s, pulled, m)
	if err != nil || img.Manifest != mine || !slices.Contains(img.Digests(), "registry.test/team/web@"+index) {
		t.Errorf("manifest %s, digests %v: %v", img.Manifest, img.Digests(), err)
	}
	_, err = s.Pull(t.Context(), pulled, Platform{OS: "linux", Architecture: "mips"}, m, &Progress{})
	if err == nil || !strings.Contains(err.Error(), "no variant for linux/mips, only for linux/s390x, linux/"+own.Architecture) {
		t.Errorf("a platform that is not there: %v", err)
	}
}

// TestFailedPullLeavesNothing lets registries lie and break (M1, M2).
func TestFailedPullLeavesNothing(t *testing.T) {
	good := [][]byte{layer(t, file("a", "1")), layer(t, file("b", "2"))}
	image := func(m *memory) { m.add(t, "v1", ocispec.MediaTypeImageManifest, good, gzipped, gzipped) }
	change := func(f func(*ocispec.Manifest)) func(*memory) {
		return func(m *memory) {
			image(m)
			var doc ocispec.Manifest
			if err := json.Unmarshal(m.manifests["v1"], &doc); err != nil {
				t.Fatal(err)
			}
			f(&doc)
			m.put(t, "v1", ocispec.MediaTypeImageManifest, doc)
		}
	}
	for name, c := range map[string]struct {
		make func(*memory)
		want string
	}{
		"other content": {func(m *memory) {
			image(m)
			m.blob = func(_ string, to io.Writer) (bool, error) { _, err := io.WriteString(to, "{}"); return true, err }
		}, "the registry sent content with the digest"},
		"broken": {func(m *memory) {
			image(m)
			var n atomic.Int32 // layers are pulled at the same time
			m.blob = func(string, io.Writer) (bool, error) {
				if n.Add(1) > 1 {
					return true, errors.New("connection broke")
				}
				return false, nil
			}
		}, "connection broke"},
		"full": {func(m *memory) {
			image(m)
			m.blob = func(string, io.Writer) (bool, error) { return true, fmt.Errorf("writing: %w", unix.ENOSPC) }
		}, "too little free space; nothing was stored"},
		"layers":    {change(func(d *ocispec.Manifest) { d.Layers = make([]ocispec.Descriptor, 10_000) }), "10000 layers; at most 500"},
		"no layers": {change(func(d *ocispec.Manifest) { d.Layers = nil }), "no layers"},
		"count":     {change(func(d *ocispec.Manifest) { d.Layers = d.Layers[:1] }), "configuration lists 2 layers, its manifest 1"},
		"digest":    {change(func(d *ocispec.Manifest) { d.Layers[0].Digest = "sha256:../../x" }), "is not sha256:"},
		"negative":  {change(func(d *ocispec.Manifest) { d.Layers[0].Size = -1 }), "-1 bytes"},
		"huge":      {change(func(d *ocispec.Manifest) { d.Layers[0].Size = 1 << 60 }), "it would take more than"},
		"config":    {change(func(d *ocispec.Manifest) { d.Config.Size = maxDocument + 1 }), "configuration of the image has"},
		"swapped":   {change(func(d *ocispec.Manifest) { slices.Reverse(d.Layers) }), "is expected"},
		"schema 1": {func(m *memory) {
			image(m)
			m.put(t, "v1", "application/vnd.docker.distribution.manifest.v1+prettyjws", map[string]any{"schemaVersion": 1})
		}, "schema 1, which is obsolete"},
		"artifact": {func(m *memory) {
			image(m)
			m.put(t, "v1", "application/zip", map[string]any{"schemaVersion": 2, "mediaType": "application/zip"})
		}, "is not that of an image"},
		"both": {func(m *memory) {
			image(m)
			m.put(t, "v1", "", map[string]any{"manifests": []any{map[string]any{}}, "config": map[string]any{"digest": "sha256:x"}})
		}, "an index and a manifest at the same time"},
		"bomb": {func(m *memory) {
			m.add(t, "v1", ocispec.MediaTypeImageManifest, [][]byte{layer(t, tar.Header{Name: "../up", Typeflag: tar.TypeReg})}, gzipped)
		}, "leads out of the image"},
	} {
		s, m := openStore(t), &memory{}
		c.make(m)
		_, err := pullInto(t, s, pulled, m)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if left := files(t, s); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func TestPullByDigestIsVerified(t *testing.T) {
	s, m := openStore(t), &memory{}
	m.add(t, "v1", ocispec.MediaTypeImageManifest, [][]byte{layer(t, file("a", "1"))})
	asked := digestOf([]byte("other"))
	m.manifests[asked], m.types[asked] = m.manifests["v1"], m.types["v1"]
	_, err := pullInto(t, s, "registry.test/team/web@"+asked, m)
	if err == nil || !strings.Contains(err.Error(), "the registry sent a manifest with the digest") {
		t.Errorf("got %v", err)
	}
}

func TestCancelledPullLeavesNothing(t *testing.T) {
	s, m := openStore(t), &memory{}
	m.add(t, "v1", ocispec.MediaTypeImageManifest, [][]byte{layer(t, file("a", "1")), layer(t, file("b", "2"))})
	ctx, cancel := context.WithCancel(t.Context())
	var blobs atomic.Int32
	m.blob = func(string, io.Writer) (bool, error) {
		if blobs.Add(1) < 2 {
			return false, nil // the configuration
		}
		cancel()
		return true, ctx.Err()
	}
	_, err := s.Pull(ctx, pulled, Platform{}, m, &Progress{})
	if !errors.Is(err, context.Canceled) || len(files(t, s)) > 0 {
		t.Errorf("%v, left %v", err, files(t, s))
	}
}

func TestTagMovesToTheNewImage(t *testing.T) {
	s, m := openStore(t), &memory{}
	first := m.add(t, "v1", ocispec.MediaTypeImageManifest, [][]byte{layer(t, file("a", "1"))})
	old, err := pullInto(t, s, pulled, m)
	if err != nil {
		t.Fatal(err)
	}
	m.add(t, "v1", ocispec.MediaTypeImageManifest, [][]byte{layer(t, file("a", "2"))})
	img, err := pullInto(t, s, pulled, m)
	if err != nil || img.ID == old.ID {
		t.Fatalf("%s: %v", img.ID, err)
	}
	left, err := s.Get("registry.test/team/web@" + first)
	if err != nil || left.ID != old.ID || len(left.Names) != 0 {
		t.Errorf("the old image is %v: %v", left.Names, err)
	}
}

// TestImageIsMountedReadOnly checks image volumes.
func TestImageIsMountedReadOnly(t *testing.T) {
	for _, count := range []int{1, 2} {
		s, m := openStore(t), &memory{}
		layers := [][]byte{
			layer(t, dir("data"), file("data/x", "one"), tar.Header{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../../data"}),
			layer(t, file("data/y", "two")),
		}[:count]
		m.add(t, "v1", ocispec.MediaTypeImageManifest, layers)
		img, err := pullInto(t, s, pulled, m)
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(t.TempDir(), "root")
		if _, err := s.Mount("c", img.ID, target); err != nil {
			t.Fatal(err)
		}
		for i, sub := range []string{"", "data", "up", "data/x"} {
			at, err := s.MountImage("c", img.ID, target, sub, i)
			if err != nil {
				t.Errorf("%d layers, %q: %v", count, sub, err)
				continue
			}
			if err := os.WriteFile(filepath.Join(at, "new"), nil, 0o600); err == nil {
				t.Errorf("%d layers, %q: is writable", count, sub)
			}
			if sub == "data" || sub == "up" {
				if data, err := os.ReadFile(filepath.Join(at, "x")); string(data) != "one" {
					t.Errorf("%d layers, %q: %q, %v", count, sub, data, err)
				}
			}
		}
		if _, err := s.MountImage("c", img.ID, target, "missing", 9); err == nil {
			t.Error("a missing path is mounted")
		}
		if err := s.Remove(img.ID); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(imageMounts(target), "0", "data", "x")); string(data) != "one" {
			t.Errorf("after the removal of the image: %q, %v", data, err)
		}
		if err := s.Unmount("c", target); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(imageMounts(target)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left: %v", err)
		}
	}
}

// Pods with different tags of one image, which start together, pull it at once. All write the same manifest, while other
// images are removed and unused files are swept.
func TestPullsOfTagsOfOneImage(t *testing.T) {
	const tags, rounds = 16, 8
	s, m := openStore(t), &memory{}
	for round := range rounds {
		var names []string
		l := layer(t, file("x", fmt.Sprint(round)))
		for i := range tags {
			tag := fmt.Sprintf("r%d-%d", round, i)
			m.add(t, tag, dockerManifest, [][]byte{l})
			names = append(names, "registry.test/team/web:"+tag)
		}
		var pulls sync.WaitGroup
		for _, name := range names {
			pulls.Go(func() {
				if _, err := pullInto(t, s, name, m); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				s.sweepLayers()
			})
		}
		pulls.Wait()
		for _, name := range names {
			img, err := s.Get(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(s.path("blobs", hexOf(img.Manifest))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if name != names[0] {
				if err := s.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, name := range files(t, s) {
		if strings.HasPrefix(name, "tmp/") || strings.HasSuffix(name, ".new") {
			t.Errorf("%s is left", name)
		}
	}
}
