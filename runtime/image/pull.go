package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/run"
)

// A Source is a repository of a registry. It may be used concurrently.
type Source interface {
	// Manifest returns the manifest or index with a tag or digest and its media type. It returns an error if it has more
	// than most bytes.
	Manifest(ctx context.Context, reference string, most int64) (data []byte, mediaType string, err error)
	// Blob writes the size bytes of a blob in order. It returns the errors of the writer.
	Blob(ctx context.Context, digest string, size int64, to io.Writer) error
}

const (
	// MaxLayers is the number of layers that an overlay mount of Linux has at most.
	MaxLayers = 500
	// downloads is how many layers of one image are fetched at a time.
	downloads = 3
)

// Progress is how far a pull is. Its fields may be read at any time.
type Progress struct {
	Layers, Bytes     atomic.Int64 // of the image; zero until its manifest is known
	Fetched, Unpacked atomic.Int64 // bytes fetched or there already, and layers unpacked or there already
}

// A Platform is the kind of machine that an image is for. Fields of the zero Platform are those of this machine.
type Platform struct{ OS, Architecture, Variant string }

// ParsePlatform reads OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT. The empty text means this machine's.
func ParsePlatform(text string) (Platform, error) {
	if text == "" {
		return Platform{}, nil
	}
	parts := strings.Split(text, "/")
	const least, most = 2, 3
	if len(parts) < least || len(parts) > most || slices.Contains(parts, "") {
		return Platform{}, fmt.Errorf("platform: must be OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, got %q", text)
	}
	p := Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == most {
		p.Variant = parts[2]
	}
	return p, nil
}

func (p Platform) String() string {
	if p.Variant != "" {
		return p.OS + "/" + p.Architecture + "/" + p.Variant
	}
	return p.OS + "/" + p.Architecture
}

// own reports whether the platform is that of this machine.
func (p Platform) own() bool { return p.OS == "linux" && p.Architecture == runtime.GOARCH }

// Pull stores the image with a normalized name from its registry, and returns it. Blobs and layers that are there are not
// fetched; manifests always are, because this is how the registry decides about access. A failed pull leaves nothing (M2).
func (s *Store) Pull(ctx context.Context, name string, platform Platform, from Source, progress *Progress) (Image, error) {
	if platform == (Platform{}) {
		platform = Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	p := &pull{store: s, ctx: ctx, name: name, platform: platform, from: from, progress: progress}
	img, err := p.run()
	if err := errors.Join(mounts.DetachBelow(p.tmp), os.RemoveAll(p.tmp)); p.tmp != "" && err != nil {
		s.opts.Log.Warn("temporary files of a pull couldn't be removed", "err", err)
	}
	s.release(p.leased)
	if err != nil {
		s.writing.Lock()
		s.sweepLayers()
		s.writing.Unlock()
		return Image{}, s.explain(fmt.Sprintf("pulling image %q", name), err)
	}
	return *img, nil
}

// A pull is the state of one pull.
//
// Blobs and layers go to their places as soon as each is complete and verified, so that several pulls share them; what
// the pull needs is leased from sweeps before it looks what is there. The record of the image is written last, when all
// else is on the disk (M5).
type pull struct {
	store    *Store
	ctx      context.Context //nolint:containedctx // lives as long as one call
	name     string
	platform Platform
	from     Source
	progress *Progress
	tmp      string
	leased   []string
	room     *budget
}

func (p *pull) run() (*Image, error) {
	repo, reference := repository(p.name), ""
	if _, digest, ok := strings.Cut(p.name, "@"); ok {
		reference = digest
	} else {
		reference = strings.TrimPrefix(p.name, repo+":")
	}
	target, manifest, data, err := p.resolve(reference, 0)
	if err != nil {
		return nil, err
	}
	img := &Image{ID: string(manifest.Config.Digest), Manifest: digestOf(data), References: []string{repo + "@" + target}}
	if !strings.Contains(p.name, "@") {
		img.Names = []string{p.name}
	}
	if err := p.prepare(manifest, img, data); err != nil {
		return nil, err
	}
	if err := p.config(manifest, img); err != nil {
		return nil, err
	}
	if err := p.layers(manifest, img); err != nil {
		return nil, err
	}
	if err := p.store.record([]*Image{img}); err != nil {
		return nil, err
	}
	got, err := p.store.Get(img.ID)
	return &got, err
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// resolve finds the manifest for the platform: behind an index it is one of several. target is the digest of the document
// with the reference.
func (p *pull) resolve(reference string, depth int) (target string, m *ocispec.Manifest, data []byte, err error) {
	const deepest = 4 // of indexes in indexes
	if depth > deepest {
		return "", nil, nil, errors.New("its indexes are nested too deeply")
	}
	data, media, err := p.from.Manifest(p.ctx, reference, maxDocument)
	if err != nil {
		return "", nil, nil, err
	}
	target = digestOf(data)
	if strings.Contains(reference, ":") && target != reference {
		return "", nil, nil, fmt.Errorf("the registry sent a manifest with the digest %s for %s", target, reference)
	}
	var doc struct {
		ocispec.Manifest
		Manifests []ocispec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return "", nil, nil, fmt.Errorf("the registry sent a manifest that is not valid JSON: %w", err)
	}
	if doc.MediaType != "" {
		media = doc.MediaType
	}
	switch {
	case doc.SchemaVersion == 1 || strings.HasPrefix(media, "application/vnd.docker.distribution.manifest.v1"):
		return "", nil, nil, errors.New("the image has a manifest of schema 1, which is obsolete and not supported: push it again with a current tool")
	case media == ocispec.MediaTypeImageIndex, media == dockerIndex, doc.MediaType == "" && len(doc.Manifests) > 0 && doc.Config.Digest == "":
		if len(doc.Layers) > 0 || doc.Config.Digest != "" {
			return "", nil, nil, errors.New("the registry sent a document that is an index and a manifest at the same time")
		}
		d, err := choose(doc.Manifests, p.platform)
		if err != nil {
			return "", nil, nil, err
		}
		_, m, data, err = p.resolve(string(d.Digest), depth+1)
		return target, m, data, err
	case len(doc.Manifests) > 0:
		return "", nil, nil, errors.New("the registry sent a document that is an index and a manifest at the same time")
	case media == ocispec.MediaTypeImageManifest, media == dockerManifest, doc.MediaType == "" && doc.Config.Digest != "":
		return target, &doc.Manifest, data, nil
	}
	return "", nil, nil, fmt.Errorf("media type %.100q is not that of an image", media)
}

const (
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
)

// choose returns the first manifest for the platform. If no variant is asked for, one without or with the usual variant is
// preferred.
func choose(list []ocispec.Descriptor, want Platform) (ocispec.Descriptor, error) {
	var found []ocispec.Descriptor
	var others []string
	for _, d := range list {
		switch {
		case d.Platform == nil || !validDigest(string(d.Digest)):
		case d.Platform.OS != want.OS || d.Platform.Architecture != want.Architecture || want.Variant != "" && d.Platform.Variant != want.Variant:
			const most = 20
			if d.Platform.OS != "unknown" && len(others) < most { // that of attestations
				others = append(others, fmt.Sprintf("%.20s/%.20s", d.Platform.OS, d.Platform.Architecture))
			}
		default:
			found = append(found, d)
		}
	}
	if len(found) == 0 && len(list) == 1 && list[0].Platform == nil && validDigest(string(list[0].Digest)) {
		return list[0], nil
	}
	if len(found) == 0 {
		return ocispec.Descriptor{}, fmt.Errorf("the image has no variant for %s, only for %s", want, strings.Join(slices.Compact(others), ", "))
	}
	for _, usual := range []string{"", "v8", "v7"} {
		if i := slices.IndexFunc(found, func(d ocispec.Descriptor) bool { return d.Platform.Variant == usual }); i >= 0 {
			return found[i], nil
		}
	}
	return found[0], nil
}

// prepare checks the manifest, makes place for the pull and stores the manifest.
func (p *pull) prepare(m *ocispec.Manifest, img *Image, data []byte) error {
	switch {
	case len(m.Layers) == 0:
		return errors.New("the image has no layers")
	case len(m.Layers) > MaxLayers:
		return fmt.Errorf("the image has %d layers; at most %d can be mounted", len(m.Layers), MaxLayers)
	case m.Config.Size < 0 || m.Config.Size > maxDocument:
		return fmt.Errorf("the configuration of the image has %d bytes; at most %d are accepted", m.Config.Size, maxDocument)
	}
	p.lease(hexOf(img.Manifest))
	for i, d := range slices.Concat([]ocispec.Descriptor{m.Config}, m.Layers) {
		if !validDigest(string(d.Digest)) {
			return fmt.Errorf("digest %.100q is not sha256: and 64 hexadecimal digits", d.Digest)
		}
		if d.Size < 0 {
			return fmt.Errorf("layer %d has %d bytes", i, d.Size)
		}
		p.lease(hexOf(string(d.Digest)))
	}
	s := p.store
	var err error
	if p.tmp, err = os.MkdirTemp(s.path("tmp"), "pull"); err != nil {
		return err
	}
	if p.room, err = s.room(); err != nil {
		return err
	}
	return s.writeDurably(s.path("blobs", hexOf(img.Manifest)), data)
}

// config fetches the configuration and names the layers.
func (p *pull) config(m *ocispec.Manifest, img *Image) error {
	if err := p.fetch(m.Config, nil); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	data, err := os.ReadFile(p.store.path("blobs", hexOf(img.ID)))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &img.Config); err != nil {
		return fmt.Errorf("the configuration of the image is not valid JSON: %w", err)
	}
	total := int64(0)
	for _, d := range m.Layers {
		img.Layers = append(img.Layers, Layer{Blob: string(d.Digest), BlobSize: d.Size, MediaType: d.MediaType})
		total += d.Size
	}
	if err := complete(img, p.platform); err != nil {
		return err
	}
	for _, l := range img.Layers {
		p.lease(layerName(l.ChainID))
	}
	p.progress.Layers.Store(int64(len(m.Layers)))
	p.progress.Bytes.Store(total)
	return nil
}

// layers fetches and unpacks the layers: several are fetched at a time, and each is unpacked when it is there and the one
// below it is unpacked.
func (p *pull) layers(m *ocispec.Manifest, img *Image) error {
	ctx, stop := context.WithCancelCause(p.ctx)
	defer stop(nil)
	p.ctx = ctx
	group := run.NewGroup(ctx, downloads)
	defer group.Stop()
	fetched := make([]chan error, len(m.Layers))
	for i := range fetched {
		fetched[i] = make(chan error, 1)
	}
	feeder := run.NewGroup(ctx, 1)
	defer feeder.Stop()
	feeder.Go(func(context.Context) {
		for i, d := range m.Layers {
			ok := group.Go(func(context.Context) {
				err := run.Catch(func() error { return p.fetch(d, &p.progress.Fetched) })
				if err != nil {
					stop(err) // the others needn't go on
				}
				fetched[i] <- err
			})
			if !ok {
				return
			}
		}
	})
	parent := ""
	for i, l := range img.Layers {
		select {
		case err := <-fetched[i]:
			if err != nil {
				return fmt.Errorf("layer %d (%s): %w", i+1, l.Blob, err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := p.unpack(l, parent); err != nil {
			return fmt.Errorf("layer %d (%s): %w", i+1, l.DiffID, err)
		}
		p.progress.Unpacked.Add(1)
		parent = l.ChainID
	}
	return nil
}

// fetch stores a blob, unless it is there, when its digest has been verified (M1).
func (p *pull) fetch(d ocispec.Descriptor, count *atomic.Int64) error {
	s, hexed := p.store, hexOf(string(d.Digest))
	release, err := s.turns.take(p.ctx, hexed)
	if err != nil {
		return err
	}
	defer release()
	if st, err := os.Stat(s.path("blobs", hexed)); err == nil && st.Mode().IsRegular() && st.Size() == d.Size {
		if count != nil {
			count.Add(d.Size)
		}
		return nil
	}
	if err := p.room.take(d.Size); err != nil {
		return err
	}
	f, err := os.CreateTemp(p.tmp, "blob")
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = p.from.Blob(p.ctx, string(d.Digest), d.Size, &counter{to: io.MultiWriter(f, sum), count: count})
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if got := digestPrefix + hex.EncodeToString(sum.Sum(nil)); got != string(d.Digest) {
		return fmt.Errorf("the registry sent content with the digest %s for %s", got, d.Digest)
	}
	return os.Rename(f.Name(), s.path("blobs", hexed))
}

// counter counts what is written, if count is not nil.
type counter struct {
	to    io.Writer
	count *atomic.Int64
}

func (c *counter) Write(data []byte) (int, error) {
	n, err := c.to.Write(data)
	if c.count != nil {
		c.count.Add(int64(n))
	}
	return n, err
}

// unpack unpacks a layer whose blob is there, unless it is unpacked.
func (p *pull) unpack(l Layer, parent string) error {
	s := p.store
	release, err := s.turns.take(p.ctx, l.ChainID)
	if err != nil {
		return err
	}
	defer release()
	if _, err := s.readLayer(l.ChainID); err == nil {
		return nil
	}
	if err := s.unpackLayer(p.ctx, p.tmp, s.path("blobs", hexOf(l.Blob)), parent, l.DiffID, p.room); err != nil {
		return err
	}
	return s.placeLayer(p.tmp, l.ChainID)
}

// placeLayer moves an unpacked layer from tmp to its place, unless there is one by now.
func (s *Store) placeLayer(tmp, chain string) error {
	s.placing.Lock()
	defer s.placing.Unlock()
	from := filepath.Join(tmp, layerName(chain))
	if _, err := s.readLayer(chain); err == nil {
		return os.RemoveAll(from)
	}
	if err := os.RemoveAll(s.layerDir(chain)); err != nil { // a damaged one
		return err
	}
	return os.Rename(from, s.layerDir(chain))
}

// lease keeps a blob or layer from being swept until the pull ends.
func (p *pull) lease(file string) {
	s := p.store
	s.uses.RLock() // a sweep that has begun may be about to remove the file
	defer s.uses.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[file]++
	p.leased = append(p.leased, file)
}

// release ends leases.
func (s *Store) release(files []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range files {
		if s.leases[f]--; s.leases[f] <= 0 {
			delete(s.leases, f)
		}
	}
}

// turns lets one caller at a time work on a blob or layer.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // guarded by mu; closed when it is free again
}

// take waits for the turn of a name; the caller must call release in the end.
func (t *turns) take(ctx context.Context, name string) (release func(), err error) {
	for {
		t.mu.Lock()
		c := t.busy[name]
		if c == nil {
			c = make(chan struct{})
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[name] = c
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.busy, name)
				t.mu.Unlock()
				close(c)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// syncAll waits until everything in the store is on the disk.
func (s *Store) syncAll() error {
	dir, err := os.Open(s.opts.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("syncing %s: %w", s.opts.Dir, err)
	}
	return nil
}
