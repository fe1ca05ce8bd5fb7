package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/internal/wholefile"
)

// ErrNotFound is returned if no image has the name or id.
var ErrNotFound = errors.New("no such image")

// Options configures a [Store]. Dir is required.
type Options struct {
	Dir string // survives restarts; made if missing

	// MaxSize is how many bytes one import may write, for the archive and for the
	// unpacked layers together; 0 means [DefaultMaxSize]. It bounds what a small
	// archive can be blown up to. An import may not take the last tenth of the free
	// space either.
	MaxSize int64

	NoOverlay bool         // copy layers instead of mounting them, as if overlayfs were missing
	Log       *slog.Logger // nil means slog.Default
}

// DefaultMaxSize is enough for the archive and the layers of every image that is
// usual, large machine learning images among them.
const DefaultMaxSize = 32 << 30

// An Image is one stored image. It is immutable.
type Image struct {
	ID       string   // digest of the configuration
	Manifest string   // digest of the manifest
	Names    []string // normalized, with tag
	// References are the names REPOSITORY@DIGEST by which it was pulled: of its manifest, or of an index that has it.
	References []string `json:",omitempty"`
	Layers     []Layer  // the lowest first
	Size       uint64   // bytes of all its layers as they came, shared with other images or not
	Imported   time.Time
	Config     ocispec.Image
}

// A Layer is one of an image's layers.
type Layer struct {
	Blob      string // digest of the file as it came
	BlobSize  int64
	MediaType string
	DiffID    string
	ChainID   string
}

// Digests are the names by which the image can be asked for with certainty:
// repository@digest.
func (i *Image) Digests() []string {
	out := slices.Clone(i.References)
	for _, name := range i.Names {
		repo := repository(name)
		if !slices.ContainsFunc(i.References, func(r string) bool { return repository(r) == repo }) {
			out = append(out, repo+"@"+i.Manifest)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ImportedRepositories returns the repositories of the names that came with archives: the image has never been pulled from those. They
// are sorted.
func (i *Image) ImportedRepositories() (repositories []string) {
	for _, name := range i.Names {
		repo := repository(name)
		if !slices.ContainsFunc(i.References, func(r string) bool { return repository(r) == repo }) {
			repositories = append(repositories, repo)
		}
	}
	slices.Sort(repositories)
	return slices.Compact(repositories)
}

// has reports whether the image has a name in a repository.
func (i *Image) has(repo string) bool {
	in := func(name string) bool { return repository(name) == repo }
	return slices.ContainsFunc(i.Names, in) || slices.ContainsFunc(i.References, in)
}

// A Store is safe for concurrent use. Only one Store may use a directory.
type Store struct {
	opts    Options
	overlay bool

	writing sync.Mutex   // held while records are written, and while an import uses layers; taken before uses
	placing sync.Mutex   // held while an unpacked layer is moved to its place
	turns   turns        // of pulls that need the same blob or layer
	uses    sync.RWMutex // held for writing while layers are swept, for reading while one gets a user; taken before mu

	mu     sync.RWMutex
	images map[string]*Image // guarded by mu; by id
	leases map[string]int    // guarded by mu; how many pulls need a blob or layer, by the name of its file
}

// Open loads the store in opts.Dir, removes what an import that was cut off has
// left there, and finds out whether overlayfs can be used.
func Open(opts Options) (*Store, error) {
	if !filepath.IsAbs(opts.Dir) {
		return nil, fmt.Errorf("image store: Options.Dir %q is not an absolute path", opts.Dir)
	}
	opts.MaxSize = cmp.Or(opts.MaxSize, DefaultMaxSize)
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	s := &Store{opts: opts, images: map[string]*Image{}, leases: map[string]int{}}
	if err := s.cleanTemporary(); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	for _, dir := range []string{"images", "blobs", "layers", "containers", "tmp"} {
		// Only root may go in: what is in a layer has other people's rights on it.
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("image store: %w", err)
		}
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	s.overlay = !opts.NoOverlay
	if s.overlay {
		if err := s.probeOverlay(); err != nil {
			s.overlay = false
			opts.Log.Warn("overlayfs can't be used in the data directory: every container gets a copy of its image, which is slower and takes more room",
				"dir", opts.Dir, "err", err)
		}
	}
	if err := s.mend(); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	s.sweepLayers()
	return s, nil
}

// mend unpacks the layers again that are not whole, as a power cut may leave them. An image of which that fails is
// forgotten, so that it is pulled again.
func (s *Store) mend() error {
	for id, img := range s.images {
		parent := ""
		for _, l := range img.Layers {
			_, err := s.readLayer(l.ChainID)
			if err != nil {
				s.opts.Log.Warn("a layer of an image is damaged, unpacking it again", "image", id, "err", err)
				err = s.unpackAgain(l, parent)
			}
			if err != nil {
				s.opts.Log.Error("an image is damaged: it has to be pulled or imported again", "image", id, "names", img.Names, "err", err)
				if err := os.Remove(s.imageFile(id)); err != nil {
					return err
				}
				delete(s.images, id)
				break
			}
			parent = l.ChainID
		}
	}
	return nil
}

// unpackAgain replaces a layer by the contents of its blob.
func (s *Store) unpackAgain(l Layer, parent string) error {
	room, err := s.room()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(s.path("tmp"), "mend")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := s.unpackLayer(context.Background(), tmp, s.path("blobs", hexOf(l.Blob)), parent, l.DiffID, room); err != nil {
		return err
	}
	if err := s.placeLayer(tmp, l.ChainID); err != nil {
		return err
	}
	return s.syncAll()
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.opts.Dir}, parts...)...)
}

// Overlay reports whether containers get overlay mounts rather than copies.
func (s *Store) Overlay() bool { return s.overlay }

func (s *Store) cleanTemporary() error {
	tmp := s.path("tmp")
	if err := mounts.DetachBelow(tmp); err != nil {
		return err
	}
	return os.RemoveAll(tmp)
}

func (s *Store) load() error {
	files, err := filepath.Glob(s.path("images", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var img Image
		if err := json.Unmarshal(data, &img); err != nil || !validDigest(img.ID) {
			return fmt.Errorf("%s is damaged (%w): remove it and import the image again", file, cmp.Or(err, errors.New("no id")))
		}
		img.Size = layersSize(img.Layers) // an earlier version stored another measure
		s.images[img.ID] = &img
	}
	return nil
}

// layersSize is the size of an image as containerd reports it, which counts a layer
// for each image that has it.
func layersSize(layers []Layer) uint64 {
	var sum uint64
	for _, l := range layers {
		sum += uint64(max(0, l.BlobSize))
	}
	return sum
}

// List returns all images, sorted by their first name.
func (s *Store) List() []Image {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Image, 0, len(s.images))
	for _, img := range s.images {
		out = append(out, *img)
	}
	first := func(i Image) string { return strings.Join(i.Names, " ") }
	sorting.Slice(out, func(a, b Image) int { return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Get finds an image by name, by repository@digest, or by id or the beginning of
// one. The error is [ErrNotFound], or says what is wrong with the name.
func (s *Store) Get(ref string) (Image, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	img, err := s.find(ref)
	if err != nil {
		return Image{}, err
	}
	return *img, nil
}

// find is Get for callers that hold mu.
func (s *Store) find(ref string) (*Image, error) {
	missing := fmt.Errorf("image %q: %w", ref, ErrNotFound)
	const shortest = 7 // of an id; a shorter one is more likely a name
	if hex := strings.TrimPrefix(ref, digestPrefix); isHex(hex) && len(hex) >= shortest {
		var found *Image
		for id, img := range s.images {
			if strings.HasPrefix(hexOf(id), hex) {
				if found != nil {
					return nil, fmt.Errorf("image id %q is ambiguous: it is the prefix of more than one id", ref)
				}
				found = img
			}
		}
		if found != nil {
			return found, nil
		}
		if strings.HasPrefix(ref, digestPrefix) {
			return nil, missing
		}
	}
	name, err := Normalize(ref)
	if err != nil {
		return nil, err
	}
	for _, img := range s.images {
		if slices.Contains(img.Names, name) || strings.Contains(name, "@") &&
			(slices.Contains(img.Digests(), name) || strings.HasSuffix(name, "@"+img.ID) || img.has(repository(name)) && strings.HasSuffix(name, "@"+img.Manifest)) {
			return img, nil
		}
	}
	return nil, missing
}

// Remove removes a name of an image, and the image with its last name. Layers that no
// image or container needs are removed (M4).
func (s *Store) Remove(ref string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	img, err := s.find(ref)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	left := *img
	name, err := Normalize(ref)
	if err == nil && slices.Contains(img.Names, name) {
		left.Names = slices.DeleteFunc(slices.Clone(img.Names), func(n string) bool { return n == name })
		if repo := repository(name); !slices.ContainsFunc(left.Names, func(n string) bool { return repository(n) == repo }) {
			left.References = slices.DeleteFunc(slices.Clone(img.References), func(n string) bool { return repository(n) == repo })
		}
	} else {
		left.Names, left.References = nil, nil
	}
	keep := len(left.Names)+len(left.References) > 0
	if keep {
		err = s.saveImage(&left)
	} else {
		err = os.Remove(s.imageFile(img.ID))
	}
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		s.mu.Unlock()
		return fmt.Errorf("removing image %q: %w", ref, err)
	case keep:
		s.images[img.ID] = &left
	default:
		delete(s.images, img.ID)
	}
	s.mu.Unlock()
	s.sweepLayers()
	return nil
}

func (s *Store) imageFile(id string) string { return s.path("images", hexOf(id)+".json") }

// saveImage writes the image's record so that it survives a power cut (M5).
func (s *Store) saveImage(img *Image) error {
	data, err := json.Marshal(img)
	if err != nil {
		return err
	}
	return s.writeDurably(s.imageFile(img.ID), data)
}

// writeDurably replaces a file in one step, so that it survives a power cut. Several goroutines may write one path: pulls of
// two tags of an image write the same manifest. The new file is made in tmp, where nothing is swept.
func (s *Store) writeDurably(path string, data []byte) error {
	root, err := os.OpenRoot(s.opts.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	name, err := filepath.Rel(s.opts.Dir, path)
	if err != nil {
		return err
	}
	return wholefile.WriteIn(root, name, "tmp", data, 0o600, wholefile.Durable)
}

// sweepLayers removes layers and blobs that no image and no container needs. What
// it can't remove it leaves to the next time.
func (s *Store) sweepLayers() {
	s.uses.Lock()
	defer s.uses.Unlock()
	needed := map[string]bool{}
	s.mu.RLock()
	for file := range s.leases {
		needed[file] = true
	}
	for _, img := range s.images {
		needed[hexOf(img.ID)], needed[hexOf(img.Manifest)] = true, true
		for _, l := range img.Layers {
			needed[hexOf(l.Blob)], needed[layerName(l.ChainID)] = true, true
		}
	}
	s.mu.RUnlock()
	entries, _ := os.ReadDir(s.path("containers"))
	for _, e := range entries {
		if use, err := s.readUse(e.Name()); err == nil {
			for _, chain := range use.Chains {
				needed[layerName(chain)] = true
			}
		}
	}
	for _, kind := range []string{"layers", "blobs"} {
		entries, _ := os.ReadDir(s.path(kind))
		for _, e := range entries {
			if !needed[e.Name()] {
				if err := os.RemoveAll(s.path(kind, e.Name())); err != nil {
					s.opts.Log.Warn("an unused layer couldn't be removed", "err", err)
				}
			}
		}
	}
}

// Usage is what the store takes on the disk: bytes and inodes of the whole
// directory, by what images say of themselves and a walk over the containers'
// writable parts.
func (s *Store) Usage() (images, containers Space, err error) {
	if images, err = measure(s.path("layers")); err != nil {
		return images, containers, err
	}
	blobs, err := measure(s.path("blobs"))
	if err != nil {
		return images, containers, err
	}
	images.Bytes += blobs.Bytes
	images.Inodes += blobs.Inodes
	containers, err = measure(s.path("containers"))
	return images, containers, err
}

// Space is used space on a disk.
type Space struct{ Bytes, Inodes uint64 }

// ContainerUsage returns the space of the files that a container has written to its root file system.
func (s *Store) ContainerUsage(container string) (Space, error) {
	return measure(s.path("containers", container))
}

func measure(dir string) (Space, error) {
	var sum Space
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is being removed meanwhile
		}
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil || st.Nlink > 1 && !d.IsDir() && seen[st.Ino] {
			return nil // gone meanwhile, or counted already
		}
		seen[st.Ino] = true
		const block = 512
		sum.Bytes += uint64(st.Blocks) * block
		sum.Inodes++
		return nil
	})
	return sum, err
}

// Dir returns the directory of the store.
func (s *Store) Dir() string { return s.opts.Dir }
