package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sampan-io/sampan/internal/run"
)

func descriptor(media, sum string, size int64) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: media, Digest: digest.Digest(sum), Size: size}
}

// Export writes an image as an OCI image layout in a tar file, with the blobs as
// they came: what is imported from it has the same id and digest.
func (s *Store) Export(ctx context.Context, ref string, w io.Writer) error {
	img, err := s.Get(ref)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	add := func(name string, size int64, content io.Reader) error {
		if err := out.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := io.Copy(out, run.Reader(ctx, content))
		return err
	}
	document := func(name string, v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return add(name, int64(len(data)), bytes.NewReader(data))
	}
	if err := document(ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}); err != nil {
		return fmt.Errorf("exporting %q: %w", ref, err)
	}
	blobs := map[string]bool{img.ID: true, img.Manifest: true}
	for _, l := range img.Layers {
		blobs[l.Blob] = true
	}
	var manifestSize int64
	for sum := range maps.Keys(blobs) {
		err := func() error {
			f, err := os.Open(s.path("blobs", hexOf(sum)))
			if err != nil {
				return err
			}
			defer f.Close()
			st, err := f.Stat()
			if err != nil {
				return err
			}
			if sum == img.Manifest {
				manifestSize = st.Size()
			}
			return add("blobs/sha256/"+hexOf(sum), st.Size(), f)
		}()
		if err != nil {
			return fmt.Errorf("exporting %q: %w", ref, err)
		}
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	names := img.Names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		d := descriptor(ocispec.MediaTypeImageManifest, img.Manifest, manifestSize)
		if name != "" {
			d.Annotations = map[string]string{"io.containerd.image.name": name}
		}
		index.Manifests = append(index.Manifests, d)
	}
	if err := document("index.json", index); err != nil {
		return fmt.Errorf("exporting %q: %w", ref, err)
	}
	return out.Close()
}
