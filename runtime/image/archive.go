package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/run"
)

// own is the platform of this machine.
var own = Platform{OS: "linux", Architecture: runtime.GOARCH}

const (
	// maxDocument bounds the JSON documents of an archive.
	maxDocument = 8 << 20

	// maxEntries and maxName bound what is remembered of an archive. An image has
	// a file for each of its at most some hundred layers, and few beside them.
	maxEntries = 100_000
	maxName    = 4096
)

// Import reads an archive, compressed with gzip or not, to its end and stores its
// images (M2). An image without a name in the archive gets the given one, if any.
// The images that it returns have the names that came with the archive; names that they
// had before are kept, too.
func (s *Store) Import(ctx context.Context, archive io.Reader, name string) ([]Image, error) {
	if name != "" {
		full, err := Normalize(name)
		if err != nil {
			return nil, err
		}
		name = full
	}
	tmp, err := os.MkdirTemp(s.path("tmp"), "import")
	if err != nil {
		return nil, s.explain(importing, err)
	}
	defer func() {
		if err := errors.Join(mounts.DetachBelow(tmp), os.RemoveAll(tmp)); err != nil {
			s.opts.Log.Warn("an import's temporary files couldn't be removed", "err", err)
		}
	}()
	room, err := s.room()
	if err != nil {
		return nil, s.explain(importing, err)
	}
	im := &importer{store: s, ctx: ctx, tmp: tmp, files: map[string]spooled{}, room: room}
	if err := im.spool(archive); err != nil {
		return nil, s.explain(importing, err)
	}
	// From here on, layers that are there must stay.
	s.writing.Lock()
	defer s.writing.Unlock()
	images, err := im.read(name)
	if err != nil {
		return nil, s.explain(importing, err)
	}
	if err := im.unpack(images); err != nil {
		return nil, s.explain(importing, err)
	}
	out := make([]Image, 0, len(images)) // with the names of this archive alone
	for _, img := range images {
		out = append(out, *img)
	}
	if err := im.commit(images); err != nil {
		s.sweepLayers()
		return nil, s.explain(importing, err)
	}
	return out, nil
}

// room returns how much an import that begins now may write.
func (s *Store) room() (*budget, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(s.opts.Dir, &disk); err != nil {
		return nil, fmt.Errorf("free space of %s: %w", s.opts.Dir, err)
	}
	return roomFor(s.opts.MaxSize, int64(disk.Bavail)*disk.Bsize), nil
}

// roomFor leaves the last tenth of the free space to other writers on that disk.
func roomFor(most, free int64) *budget {
	if usable := free - free/10; usable < most {
		return &budget{limit: usable, over: fmt.Errorf("it would take more than the %d bytes that are nine tenths of the free space: %w", usable, unix.ENOSPC)}
	}
	return &budget{limit: most, over: fmt.Errorf("it would take more than the %d bytes that one import may write", most)}
}

// errNoArchive is the error of an input whose first entry cannot be read.
var errNoArchive = errors.New("this is not a tar file (docker-archive or OCI image layout)")

// importing is what an import does, for errors.
const importing = "importing an image"

// explain adds advice to an error.
func (s *Store) explain(doing string, err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%s: the disk with %s has too little free space; nothing was stored: %w", doing, s.opts.Dir, err)
	case errors.Is(err, io.ErrUnexpectedEOF) && doing == importing:
		return fmt.Errorf("%s: the archive is cut off: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// An importer holds the state of one import.
type importer struct {
	store *Store
	ctx   context.Context //nolint:containedctx // lives as long as one call
	tmp   string
	files map[string]spooled // by their names in the archive
	room  *budget

	layers []string // chain ids of the new ones in tmp
}

// spooled is a file of the archive, now in tmp under its digest.
type spooled struct {
	digest string
	size   int64
	link   string // instead: another name in the archive
}

func (im *importer) blob(digest string) string { return filepath.Join(im.tmp, "blob-"+hexOf(digest)) }

// spool copies the archive's files to tmp, because the archive lists its contents only
// at its end. Files whose names contain a digest are verified at once (M1).
func (im *importer) spool(archive io.Reader) error {
	plain, err := decompress(run.Reader(im.ctx, archive))
	if err != nil {
		return err
	}
	entries := tar.NewReader(plain)
	last := ""
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			if last == "" {
				return errors.New("the archive is empty")
			}
			break
		}
		if err != nil {
			if last == "" {
				return errNoArchive
			}
			return fmt.Errorf("after entry %q: %w", last, err)
		}
		last = h.Name
		name, err := inside(h.Name)
		if err == nil {
			err = im.spoolEntry(name, h, entries)
		}
		if err != nil {
			return fmt.Errorf("entry %q: %w", h.Name, err)
		}
	}
	// The rest is padding. Read it, so that the sender gets no broken pipe.
	_, err = io.Copy(io.Discard, plain)
	return err
}

func (im *importer) spoolEntry(name string, h *tar.Header, content io.Reader) error {
	switch {
	case len(im.files) >= maxEntries:
		return fmt.Errorf("the archive has more than %d entries, which no image needs", maxEntries)
	case len(name) > maxName || len(h.Linkname) > maxName:
		return fmt.Errorf("its name or what it links to is longer than %d bytes", maxName)
	}
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeXGlobalHeader:
		return nil
	case tar.TypeSymlink, tar.TypeLink: // docker-archives name a shared layer twice this way
		to := h.Linkname
		if h.Typeflag == tar.TypeSymlink && !path.IsAbs(to) {
			to = path.Join(path.Dir(name), to)
		}
		to = path.Clean(to)
		if path.IsAbs(to) || to == ".." || strings.HasPrefix(to, "../") {
			return fmt.Errorf("it links to %q outside the archive", h.Linkname)
		}
		im.files[name] = spooled{link: to}
		return nil
	case tar.TypeReg:
	default:
		return fmt.Errorf("its type %q is not one of a file, directory and link", string(h.Typeflag))
	}
	if err := im.room.take(h.Size); err != nil {
		return err
	}
	f, err := os.CreateTemp(im.tmp, "spool")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // or nothing, if it was renamed
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), content)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if n != h.Size {
		return fmt.Errorf("it has %d bytes, but %d are announced", n, h.Size)
	}
	digest := digestPrefix + hex.EncodeToString(sum.Sum(nil))
	if promised, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digestPrefix+promised != digest {
		return fmt.Errorf("its content has the digest %s: the archive is damaged or was changed", digest)
	}
	im.files[name] = spooled{digest: digest, size: n}
	return os.Rename(f.Name(), im.blob(digest))
}

// file finds a file of the archive, through links.
func (im *importer) file(name string) (spooled, error) {
	at := path.Clean(name)
	const deepest = 8 // links to links
	for range deepest {
		f, ok := im.files[at]
		if !ok {
			return spooled{}, fmt.Errorf("the archive has no file %q", name)
		}
		if f.link == "" {
			return f, nil
		}
		at = f.link
	}
	return spooled{}, fmt.Errorf("%q is a link that leads nowhere", name)
}

func (im *importer) document(name string, into any) (spooled, error) {
	f, err := im.file(name)
	if err != nil {
		return f, err
	}
	if f.size > maxDocument {
		return f, fmt.Errorf("entry %q has %d bytes; a JSON document of an image has at most %d", name, f.size, maxDocument)
	}
	data, err := os.ReadFile(im.blob(f.digest))
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return f, fmt.Errorf("entry %q: %w", name, err)
	}
	return f, nil
}

// read returns the images in the archive. A docker-archive has a
// manifest.json, which newer ones have beside the OCI image layout; it knows the
// names.
func (im *importer) read(name string) ([]*Image, error) {
	var images []*Image
	var err error
	switch {
	case im.has("manifest.json"):
		images, err = im.readDocker()
	case im.has("index.json"):
		images, err = im.readOCI()
	default:
		return nil, errors.New("the archive has neither manifest.json (docker-archive) nor index.json (OCI image layout): it is not an image")
	}
	if err != nil {
		return nil, err
	}
	if len(images) == 0 {
		return nil, errors.New("the archive holds no image")
	}
	for _, img := range images {
		if len(img.Names) == 0 && name != "" {
			img.Names = []string{name}
		}
		slices.Sort(img.Names)
		img.Names = slices.Compact(img.Names)
	}
	return images, nil
}

func (im *importer) has(name string) bool { _, ok := im.files[name]; return ok }

func (im *importer) readDocker() ([]*Image, error) {
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if _, err := im.document("manifest.json", &list); err != nil {
		return nil, err
	}
	var images []*Image
	for _, m := range list {
		img := &Image{}
		config, err := im.document(m.Config, &img.Config)
		if err != nil {
			return nil, err
		}
		img.ID = config.digest
		for _, tag := range m.RepoTags {
			full, err := Normalize(tag)
			if err != nil {
				return nil, fmt.Errorf("entry %q: %w", "manifest.json", err)
			}
			img.Names = append(img.Names, full)
		}
		for _, name := range m.Layers {
			f, err := im.file(name)
			if err != nil {
				return nil, err
			}
			media, err := im.mediaType(f)
			if err != nil {
				return nil, fmt.Errorf("entry %q: %w", name, err)
			}
			img.Layers = append(img.Layers, Layer{Blob: f.digest, BlobSize: f.size, MediaType: media})
		}
		if err := complete(img, own); err != nil {
			return nil, err
		}
		if img.Manifest, err = im.makeManifest(img, config.size); err != nil {
			return nil, err
		}
		images = append(images, img)
	}
	return images, nil
}

func (im *importer) mediaType(f spooled) (string, error) {
	r, err := os.Open(im.blob(f.digest))
	if err != nil {
		return "", err
	}
	defer r.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err == nil && bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return ocispec.MediaTypeImageLayerGzip, nil
	}
	return ocispec.MediaTypeImageLayer, nil
}

// makeManifest writes the OCI manifest that a docker-archive lacks.
func (im *importer) makeManifest(img *Image, configSize int64) (string, error) {
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    descriptor(ocispec.MediaTypeImageConfig, img.ID, configSize),
	}
	for _, l := range img.Layers {
		m.Layers = append(m.Layers, descriptor(l.MediaType, l.Blob, l.BlobSize))
	}
	data, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	digest := digestPrefix + hex.EncodeToString(sum[:])
	return digest, os.WriteFile(im.blob(digest), data, 0o600)
}

func (im *importer) readOCI() ([]*Image, error) {
	var index ocispec.Index
	if _, err := im.document("index.json", &index); err != nil {
		return nil, err
	}
	var images []*Image
	for _, d := range index.Manifests {
		found, err := im.fromDescriptor(d, d.Annotations, 0)
		if err != nil {
			return nil, err
		}
		images = append(images, found...)
	}
	return images, nil
}

// fromDescriptor follows a descriptor to images; of an index for several machines
// it takes those for this one.
func (im *importer) fromDescriptor(d ocispec.Descriptor, named map[string]string, depth int) ([]*Image, error) {
	const deepest = 4 // of indexes in indexes
	if depth > deepest {
		return nil, errors.New("its indexes are nested too deeply")
	}
	name, err := blobName(string(d.Digest))
	if err != nil {
		return nil, err
	}
	switch d.MediaType {
	case ocispec.MediaTypeImageIndex, "application/vnd.docker.distribution.manifest.list.v2+json":
		var index ocispec.Index
		if _, err := im.document(name, &index); err != nil {
			return nil, err
		}
		var images []*Image
		for _, sub := range index.Manifests {
			if p := sub.Platform; p != nil && (p.OS != "linux" || p.Architecture != runtime.GOARCH) {
				continue // also attestations, whose platform is "unknown"
			}
			if sub.Platform == nil && !im.has(path.Join("blobs/sha256", hexOf(string(sub.Digest)))) {
				continue
			}
			found, err := im.fromDescriptor(sub, named, depth+1)
			if err != nil {
				return nil, err
			}
			images = append(images, found...)
		}
		if len(images) == 0 {
			return nil, fmt.Errorf("the archive has no image for linux/%s", runtime.GOARCH)
		}
		return images, nil
	case ocispec.MediaTypeImageManifest, "application/vnd.docker.distribution.manifest.v2+json":
	default:
		return nil, fmt.Errorf("media type %q of %s is not that of an image", d.MediaType, d.Digest)
	}
	var m ocispec.Manifest
	if _, err := im.document(name, &m); err != nil {
		return nil, err
	}
	img := &Image{Manifest: string(d.Digest), ID: string(m.Config.Digest)}
	if name, err = blobName(img.ID); err != nil {
		return nil, err
	}
	if _, err := im.document(name, &img.Config); err != nil {
		return nil, err
	}
	for _, l := range m.Layers {
		name, err := blobName(string(l.Digest))
		if err != nil {
			return nil, err
		}
		f, err := im.file(name)
		if err != nil {
			return nil, err
		}
		img.Layers = append(img.Layers, Layer{Blob: f.digest, BlobSize: f.size, MediaType: l.MediaType})
	}
	for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		ref := named[key]
		// A bare tag is a name only next to the directory it is in.
		if ref == "" || key == "org.opencontainers.image.ref.name" && (len(img.Names) > 0 || !strings.ContainsAny(ref, "/:")) {
			continue
		}
		full, err := Normalize(ref)
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", "index.json", err)
		}
		img.Names = append(img.Names, full)
	}
	return []*Image{img}, complete(img, own)
}

func blobName(digest string) (string, error) {
	if !validDigest(digest) {
		return "", fmt.Errorf("digest %q is not sha256: and 64 hexadecimal digits", digest)
	}
	return "blobs/sha256/" + hexOf(digest), nil
}

// complete checks the configuration and names the layers. The image must be for the platform.
func complete(img *Image, want Platform) error {
	c := img.Config
	if c.OS != "" && c.OS != want.OS || c.Architecture != "" && c.Architecture != want.Architecture {
		if !want.own() {
			return fmt.Errorf("the image is made for %.20s/%.20s, not for %s", c.OS, c.Architecture, want)
		}
		return fmt.Errorf("the image is made for %.20s/%.20s, this machine is %s", c.OS, c.Architecture, want)
	}
	if len(c.RootFS.DiffIDs) != len(img.Layers) {
		return fmt.Errorf("the image's configuration lists %d layers, its manifest %d", len(c.RootFS.DiffIDs), len(img.Layers))
	}
	if len(img.Layers) == 0 {
		return errors.New("the image has no layers")
	}
	chain := ""
	for i, diff := range c.RootFS.DiffIDs {
		if !validDigest(string(diff)) {
			return fmt.Errorf("digest %q is not sha256: and 64 hexadecimal digits", diff)
		}
		chain = chainID(chain, string(diff))
		img.Layers[i].DiffID, img.Layers[i].ChainID = string(diff), chain
	}
	return nil
}

// unpack unpacks the layers that aren't there yet, each once.
func (im *importer) unpack(images []*Image) error {
	for _, img := range images {
		parent := ""
		for i, l := range img.Layers {
			_, err := im.store.readLayer(l.ChainID)
			if err != nil && !slices.Contains(im.layers, l.ChainID) {
				// Replace a damaged layer.
				if err := os.RemoveAll(im.store.layerDir(l.ChainID)); err != nil {
					return err
				}
				err = im.store.unpackLayer(im.ctx, im.tmp, im.blob(l.Blob), parent, l.DiffID, im.room)
				if err != nil {
					return fmt.Errorf("layer %d (%s): %w", i+1, l.DiffID, err)
				}
				im.layers = append(im.layers, l.ChainID)
			}
			parent = l.ChainID
		}
	}
	return nil
}

// commit moves everything to its place: layers and blobs first, and when they are
// safe on the disk the records that need them (M5).
func (im *importer) commit(images []*Image) error {
	s := im.store
	for _, chain := range im.layers {
		if err := s.placeLayer(im.tmp, chain); err != nil {
			return err
		}
	}
	for _, img := range images {
		blobs := []string{img.ID, img.Manifest}
		for _, l := range img.Layers {
			blobs = append(blobs, l.Blob)
		}
		for _, digest := range blobs {
			err := os.Rename(im.blob(digest), s.path("blobs", hexOf(digest)))
			if err != nil && !errors.Is(err, os.ErrNotExist) { // moved already, for another image or as another's layer
				return err
			}
		}
	}
	return s.recordLocked(images)
}

// record writes the records of images whose blobs and layers are at their places (M5).
func (s *Store) record(images []*Image) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.recordLocked(images)
}

// recordLocked is record for callers that hold writing.
func (s *Store) recordLocked(images []*Image) error {
	if err := s.syncAll(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[string]*Image{}
	for _, img := range images {
		if old := cmp.Or(next[img.ID], s.images[img.ID]); old != nil {
			img.Names = append(slices.Clone(old.Names), img.Names...)
			slices.Sort(img.Names)
			img.Names = slices.Compact(img.Names)
			img.References = append(slices.Clone(old.References), img.References...)
			slices.Sort(img.References)
			img.References = slices.Compact(img.References)
		}
		img.Size, img.Imported = layersSize(img.Layers), time.Now()
		next[img.ID] = img
	}
	// A name belongs to the newest image that has it.
	for id, old := range s.images {
		if next[id] != nil {
			continue
		}
		taken := func(name string) bool {
			return slices.ContainsFunc(images, func(img *Image) bool { return slices.Contains(img.Names, name) })
		}
		if slices.ContainsFunc(old.Names, taken) {
			without := *old
			without.Names = slices.DeleteFunc(slices.Clone(old.Names), taken)
			next[id] = &without
		}
	}
	for _, img := range next {
		if err := s.saveImage(img); err != nil {
			s.forgetNew(next)
			return err
		}
	}
	maps.Copy(s.images, next)
	return nil
}

// forgetNew takes back records that were written before one couldn't be. The
// caller holds mu.
func (s *Store) forgetNew(next map[string]*Image) {
	for id := range next {
		if old := s.images[id]; old != nil {
			_ = s.saveImage(old)
		} else {
			_ = os.Remove(s.imageFile(id))
		}
	}
}
