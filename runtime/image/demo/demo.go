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

// Archive returns a docker-archive of both images around a static program. The
// same program gives the same images, byte for byte.
func Archive(program []byte) ([]byte, error) {
	layer, err := layerTar(program)
	if err != nil {
		return nil, err
	}
	diff := sum(layer)
	files := []file{{diff + "/layer.tar", layer}}
	var manifest []map[string]any
	for _, version := range Versions() {
		config, err := json.Marshal(configuration(version, diff))
		if err != nil {
			return nil, err
		}
		name := sum(config) + ".json"
		files = append(files, file{name, config})
		manifest = append(manifest, map[string]any{
			"Config": name, "RepoTags": []string{Repository + ":" + version}, "Layers": []string{diff + "/layer.tar"},
		})
	}
	list, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = write(&out, append(files, file{"manifest.json", list}))
	return out.Bytes(), err
}

type file struct {
	name string
	data []byte
}

func write(w io.Writer, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.data)), ModTime: born()}); err != nil {
			return fmt.Errorf("demo images: %w", err)
		}
		if _, err := t.Write(f.data); err != nil {
			return fmt.Errorf("demo images: %w", err)
		}
	}
	return t.Close()
}

// born is the date of everything in the images, so that they don't change with the
// day they are built.
func born() time.Time { return time.Unix(0, 0).UTC() }

// layerTar is the whole file system: the program, a place for temporary files, and
// who there is.
func layerTar(program []byte) ([]byte, error) {
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	add := func(name string, kind byte, mode int64, data string) error {
		h := &tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: int64(len(data)), ModTime: born()}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.WriteString(t, data)
		return err
	}
	for _, f := range []struct {
		name string
		kind byte
		mode int64
		data string
	}{
		{"bin/", tar.TypeDir, 0o755, ""},
		{"bin/demo", tar.TypeReg, 0o755, string(program)},
		{"etc/", tar.TypeDir, 0o755, ""},
		{"etc/group", tar.TypeReg, 0o644, "root:x:0:\ndemo:x:1000:\nextra:x:2000:demo\n"},
		{"etc/passwd", tar.TypeReg, 0o644, "root:x:0:0:root:/:/bin/demo\ndemo:x:1000:1000:demo:/:/bin/demo\n"},
		{"tmp/", tar.TypeDir, 0o1777, ""},
	} {
		if err := add(f.name, f.kind, f.mode, f.data); err != nil {
			return nil, fmt.Errorf("demo layer: %w", err)
		}
	}
	err := t.Close()
	return out.Bytes(), err
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

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
