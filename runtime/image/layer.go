package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// layerName is the name of a chain's directory: short, because overlayfs wants all
// of them on one page, and long enough never to meet another.
func layerName(chain string) string { return hexOf(chain)[:24] }

// layerMeta is stored next to a layer's files.
type layerMeta struct {
	Chain  string
	Parent string // chain id of the layer below; "" for the lowest
	Flat   bool   // holds a copy of all layers below, because there was no overlayfs
}

func (s *Store) layerDir(chain string) string { return s.path("layers", layerName(chain)) }

func (s *Store) readLayer(chain string) (layerMeta, error) {
	var m layerMeta
	data, err := os.ReadFile(filepath.Join(s.layerDir(chain), "meta.json"))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.Chain != chain {
		err = fmt.Errorf("holds %s", m.Chain)
	}
	if err != nil {
		return m, fmt.Errorf("layer %s: %w", chain, err)
	}
	return m, nil
}

// chainID names layer diff on top of parent, as the OCI image specification says.
func chainID(parent, diff string) string {
	if parent == "" {
		return diff
	}
	sum := sha256.Sum256([]byte(parent + " " + diff))
	return digestPrefix + hex.EncodeToString(sum[:])
}

// unpackLayer unpacks a layer file on top of parent into a new directory below
// tmp, and checks that it is what diffID says. The caller moves the directory to its
// place.
func (s *Store) unpackLayer(ctx context.Context, tmp, file, parent, diffID string, room *budget) error {
	chain := chainID(parent, diffID)
	meta := layerMeta{Chain: chain, Parent: parent}
	dir := filepath.Join(tmp, layerName(chain))
	upper := filepath.Join(dir, "fs")
	if err := os.MkdirAll(upper, 0o755); err != nil {
		return err
	}
	target := upper
	done := func() error { return nil }
	if parent != "" {
		below, err := s.readChain(tmp, parent)
		if err != nil {
			return err
		}
		if s.overlay && !below[0].meta.Flat {
			// Through an overlay, so that a name that leads through a link of a
			// lower layer ends where it would for the container, and the kernel
			// itself makes the whiteouts.
			target = filepath.Join(dir, "merged")
			work := filepath.Join(dir, "work")
			for _, d := range []string{target, work} {
				if err := os.MkdirAll(d, 0o700); err != nil {
					return err
				}
			}
			if err := mountOverlay(target, dirs(below), upper, work); err != nil {
				return err
			}
			done = func() error {
				if err := unix.Unmount(target, 0); err != nil {
					return fmt.Errorf("unmounting %s: %w", target, err)
				}
				return errors.Join(os.Remove(target), os.RemoveAll(work))
			}
		} else {
			meta.Flat = true
			if err := s.copyChain(below, upper); err != nil {
				return err
			}
		}
	} else if !s.overlay {
		meta.Flat = true
	}
	err := applyFile(ctx, target, file, diffID, room)
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	data, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "meta.json"), data, 0o600)
}

// applyFile applies a layer file, compressed or not, to the tree at root.
func applyFile(ctx context.Context, root, file, diffID string, room *budget) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := decompress(f)
	if err != nil {
		return err
	}
	sum := sha256.New()
	stream := io.TeeReader(run.Reader(ctx, plain), sum)
	if err := apply(root, tar.NewReader(stream), room); err != nil {
		return err
	}
	// The digest is that of the whole file, also of what follows the archive's end.
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return fmt.Errorf("reading on to the end of the layer: %w", err)
	}
	return expect(sum, diffID, "a layer")
}

func expect(sum hash.Hash, digest, what string) error {
	if got := digestPrefix + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("%s has the digest %s, but %s is expected: the archive is damaged or was changed", what, got, digest)
	}
	return nil
}

// decompress looks at the first bytes: what a media type says is often wrong.
func decompress(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return z, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// A window of 128 MiB is what zstd --ultra uses at most.
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return b, nil
}

// chainLayer is one layer of a chain, wherever it lies at the moment.
type chainLayer struct {
	meta layerMeta
	fs   string
}

func dirs(chain []chainLayer) []string {
	var out []string
	for _, l := range chain {
		out = append(out, l.fs)
	}
	return out
}

// readChain returns a chain's layers, the top one first; a flat layer includes all layers
// below it. Layers that were just unpacked are looked for in tmp first.
func (s *Store) readChain(tmp, top string) ([]chainLayer, error) {
	var out []chainLayer
	for chain := top; chain != ""; {
		dir := filepath.Join(tmp, layerName(chain))
		if _, err := os.Stat(dir); tmp == "" || err != nil {
			dir = s.layerDir(chain)
		}
		var m layerMeta
		data, err := os.ReadFile(filepath.Join(dir, "meta.json"))
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", chain, err)
		}
		out = append(out, chainLayer{meta: m, fs: filepath.Join(dir, "fs")})
		if m.Flat {
			break
		}
		chain = m.Parent
	}
	return out, nil
}

// copyChain makes one tree of a chain's layers in dir.
func (s *Store) copyChain(chain []chainLayer, dir string) error {
	if len(chain) == 1 {
		return copyTree(chain[0].fs, dir)
	}
	return fmt.Errorf("the layers were unpacked for overlayfs, which can't be used any more in %s: remove this image and import it again", s.opts.Dir)
}

// probeOverlay mounts a small overlay to see whether that works here.
func (s *Store) probeOverlay() error {
	dir, err := os.MkdirTemp(s.path("tmp"), "probe")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sub := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(sub(d), 0o700); err != nil {
			return err
		}
	}
	if err := mountOverlay(sub("merged"), []string{sub("lower")}, sub("upper"), sub("work")); err != nil {
		return err
	}
	probe := os.WriteFile(filepath.Join(sub("merged"), "probe"), nil, 0o600)
	return errors.Join(probe, unix.Unmount(sub("merged"), 0))
}

// mountOverlay mounts the layers, the top one first, with a writable one over them.
// Devices in it can't be used, whatever an image contains.
func mountOverlay(target string, lower []string, upper, work string) error {
	options := func(extra string) string {
		return "lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + upper + ",workdir=" + work + extra
	}
	for _, p := range append([]string{upper, work}, lower...) {
		if strings.ContainsAny(p, ":,\\") {
			return fmt.Errorf("overlay: the path %s must not contain colons, commas and backslashes", p)
		}
	}
	if len(options(",volatile")) >= os.Getpagesize() {
		return mountDeepOverlay(target, lower, upper, work)
	}
	// volatile: nothing that a container writes to its root is worth waiting for
	// the disk; it doesn't outlive the container. Kernels before 5.10 don't know.
	err := unix.Mount("overlay", target, "overlay", unix.MS_NODEV, options(",volatile"))
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("overlay", target, "overlay", unix.MS_NODEV, options(""))
	}
	if err != nil {
		return fmt.Errorf("overlay at %s: %w", target, err)
	}
	return nil
}

// mountDeepOverlay names the layers one by one, for images with so many that their
// names don't fit on a page (Linux 6.7).
func mountDeepOverlay(target string, lower []string, upper, work string) error {
	ctx, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	defer unix.Close(ctx)
	for _, kv := range [][2]string{{"upperdir", upper}, {"workdir", work}} {
		if err := unix.FsconfigSetString(ctx, kv[0], kv[1]); err != nil {
			return fmt.Errorf("overlay %s: %w", kv[0], err)
		}
	}
	_ = unix.FsconfigSetFlag(ctx, "volatile")
	return createOverlay(ctx, target, lower, unix.MOUNT_ATTR_NODEV)
}

// createOverlay mounts an overlay file system that is configured except for its lower layers.
func createOverlay(ctx int, target string, lower []string, attributes int) error {
	for _, l := range lower {
		if err := unix.FsconfigSetString(ctx, "lowerdir+", l); err != nil {
			return fmt.Errorf("overlay of %d layers needs Linux 6.7: %w", len(lower), err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fmt.Errorf("overlay at %s: %w", target, err)
	}
	mnt, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return fmt.Errorf("overlay at %s: %w", target, err)
	}
	defer unix.Close(mnt)
	if err := unix.MoveMount(mnt, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("overlay at %s: %w", target, err)
	}
	return nil
}
