package demo

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Repository is the name of the images without their tags.
const Repository = "sampan.local/demo"

// Versions are the tags of the images.
func Versions() []string { return []string{"v1", "v2"} }

// Images are the two images around one program.
type Images struct {
	// IDs are the images' ids by their names. The same program gives the same ones.
	IDs map[string]string

	archive segments
}

// New makes the images of a static program, which is not copied and must not be
// changed.
func New(program []byte) (*Images, error) {
	layer, err := layerTar(program)
	if err != nil {
		return nil, fmt.Errorf("demo layer: %w", err)
	}
	diff := sum(layer...)
	files := []file{{diff + "/layer.tar", layer}}
	images := &Images{IDs: map[string]string{}}
	var manifest []map[string]any
	for _, version := range Versions() {
		config, err := json.Marshal(configuration(version, diff))
		if err != nil {
			return nil, err
		}
		id := sum(config)
		images.IDs[Repository+":"+version] = "sha256:" + id
		files = append(files, file{id + ".json", segments{config}})
		manifest = append(manifest, map[string]any{
			"Config": id + ".json", "RepoTags": []string{Repository + ":" + version}, "Layers": []string{diff + "/layer.tar"},
		})
	}
	list, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	if err := write(&images.archive, append(files, file{"manifest.json", segments{list}})); err != nil {
		return nil, fmt.Errorf("demo images: %w", err)
	}
	return images, nil
}

// Archive returns a docker-archive of the images.
func (i *Images) Archive() io.Reader {
	var parts []io.Reader
	for _, p := range i.archive {
		parts = append(parts, bytes.NewReader(p))
	}
	return io.MultiReader(parts...)
}

// segments are the parts of a file. The large one, the program, is in it without
// having been copied.
type segments [][]byte

// Write implements [io.Writer]. It keeps a large p instead of copying it.
func (s *segments) Write(p []byte) (int, error) {
	const large = 64 << 10
	if len(p) < large {
		p = bytes.Clone(p)
	}
	*s = append(*s, p)
	return len(p), nil
}

func (s segments) size() int64 {
	var n int64
	for _, p := range s {
		n += int64(len(p))
	}
	return n
}

type file struct {
	name string
	data segments
}

func write(w io.Writer, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: f.data.size(), ModTime: born()}); err != nil {
			return err
		}
		for _, p := range f.data {
			if _, err := t.Write(p); err != nil {
				return err
			}
		}
	}
	return t.Close()
}

// born is the date of everything in the images, so that they don't change with the
// day they are built.
func born() time.Time { return time.Unix(0, 0).UTC() }

// layerTar is the whole file system: the program, a directory for temporary files, and
// the users and groups.
func layerTar(program []byte) (segments, error) {
	var out segments
	t := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		kind byte
		mode int64
		data []byte
	}{
		{"bin/", tar.TypeDir, 0o755, nil},
		{"bin/demo", tar.TypeReg, 0o755, program},
		{"etc/", tar.TypeDir, 0o755, nil},
		{"etc/group", tar.TypeReg, 0o644, []byte("root:x:0:\ndemo:x:1000:\nextra:x:2000:demo\n")},
		{"etc/passwd", tar.TypeReg, 0o644, []byte("root:x:0:0:root:/:/bin/demo\ndemo:x:1000:1000:demo:/:/bin/demo\n")},
		{"tmp/", tar.TypeDir, 0o1777, nil},
	} {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Size: int64(len(f.data)), ModTime: born()}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	return out, t.Close()
}

func configuration(version, diff string) ocispec.Image {
	created := born()
	return ocispec.Image{
		Created:  &created,
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		Config: ocispec.ImageConfig{
			Entrypoint: []string{"/bin/demo"},
			Cmd:        []string{"serve"},
			Env:        []string{"PATH=/bin", "DEMO_VERSION=" + version},
			WorkingDir: "/",
		},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.Digest("sha256:" + diff)}},
	}
}

func sum(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
