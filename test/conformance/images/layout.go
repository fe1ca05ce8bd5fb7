package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Media types of the OCI image specification.
const (
	IndexType    = "application/vnd.oci.image.index.v1+json"
	ManifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// NameAnnotation is the annotation of a manifest with the full name of its image.
const NameAnnotation = "io.containerd.image.name"

// A Descriptor is one of the OCI image specification.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// An Index lists images: the file index.json of a layout.
type Index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []Descriptor `json:"manifests"`
}

// A Config is the part of an image that says how containers are started.
type Config struct {
	User       string   `json:"User,omitempty"`
	Env        []string `json:"Env,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	Cmd        []string `json:"Cmd,omitempty"`
}

// A Layer is a file system that several images may share.
type Layer struct {
	Descriptor
	diffID string // digest of the uncompressed layer
}

// A Layout is a directory in the OCI image layout, while it is being written.
type Layout struct {
	dir   string
	index Index
}

// NewLayout begins a layout in an empty or missing directory.
func NewLayout(dir string) (*Layout, error) {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return nil, err
	}
	return &Layout{dir: dir, index: Index{SchemaVersion: 2, MediaType: IndexType}}, nil // version of the format
}

// digest returns the digest that a hash has come to.
func digest(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// BlobFile returns the path of the blob with a digest.
func BlobFile(dir, digest string) string {
	return filepath.Join(dir, "blobs", strings.Replace(digest, ":", string(filepath.Separator), 1))
}

// Layer adds a layer of the files that add writes.
func (l *Layout) Layer(add func(*tar.Writer) error) (Layer, error) {
	f, err := os.CreateTemp(l.dir, "layer-")
	if err != nil {
		return Layer{}, err
	}
	defer f.Close()
	compressed, plain := sha256.New(), sha256.New()
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, compressed), gzip.BestSpeed)
	if err != nil {
		return Layer{}, err
	}
	t := tar.NewWriter(io.MultiWriter(z, plain))
	if err := errors.Join(add(t), t.Close(), z.Close()); err != nil {
		return Layer{}, errors.Join(err, os.Remove(f.Name()))
	}
	info, err := f.Stat()
	if err != nil {
		return Layer{}, err
	}
	made := Layer{Descriptor{MediaType: layerType, Digest: digest(compressed), Size: info.Size()}, digest(plain)}
	return made, errors.Join(f.Chmod(0o644), os.Rename(f.Name(), BlobFile(l.dir, made.Digest)))
}

// blob adds a document.
func (l *Layout) blob(mediaType string, value any) (Descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return Descriptor{}, err
	}
	h := sha256.New()
	_, _ = h.Write(data) // a hash returns no error
	d := Descriptor{MediaType: mediaType, Digest: digest(h), Size: int64(len(data))}
	return d, os.WriteFile(BlobFile(l.dir, d.Digest), data, 0o644) // no secret
}

// Image adds an image with names such as registry.example/app:v1.
func (l *Layout) Image(names []string, c Config, layers ...Layer) error {
	type rootfs struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	fs := rootfs{Type: "layers"}
	var descriptors []Descriptor
	for _, layer := range layers {
		fs.DiffIDs = append(fs.DiffIDs, layer.diffID)
		descriptors = append(descriptors, layer.Descriptor)
	}
	config, err := l.blob(configType, struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		Config       Config `json:"config"`
		RootFS       rootfs `json:"rootfs"`
	}{runtime.GOARCH, "linux", c, fs})
	if err != nil {
		return err
	}
	manifest, err := l.blob(ManifestType, struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        Descriptor   `json:"config"`
		Layers        []Descriptor `json:"layers"`
	}{2, ManifestType, config, descriptors}) // version of the format
	if err != nil {
		return err
	}
	for _, name := range names {
		manifest.Annotations = map[string]string{NameAnnotation: name}
		l.index.Manifests = append(l.index.Manifests, manifest)
	}
	return nil
}

// Close writes the index, which completes the layout.
func (l *Layout) Close() error {
	data, err := json.Marshal(l.index)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(l.dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644), // no secret
		os.WriteFile(filepath.Join(l.dir, "index.json"), data, 0o644),                                     // no secret
	)
}

// Read returns the images of a complete layout.
func Read(dir string) (Index, error) {
	var i Index
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err == nil {
		err = json.Unmarshal(data, &i)
	}
	if err != nil {
		return i, fmt.Errorf("reading the images in %s: %w", dir, err)
	}
	return i, nil
}

// Archive writes a layout as one tar file.
func Archive(dir, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	t := tar.NewWriter(f)
	return errors.Join(t.AddFS(os.DirFS(dir)), t.Close(), f.Close())
}

// files writes files, directories and links into a layer.
type files struct{ *tar.Writer }

func (f files) dirs(paths ...string) error {
	for _, p := range paths {
		mode := int64(0o755)
		if strings.HasSuffix(p, "tmp") || p == "uploads" {
			mode = 0o1777
		}
		if err := f.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: p + "/", Mode: mode}); err != nil {
			return err
		}
	}
	return nil
}

func (f files) text(path, content string) error {
	return f.put(path, 0o644, int64(len(content)), strings.NewReader(content))
}

func (f files) put(path string, mode, size int64, from io.Reader) error {
	if err := f.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(f, from)
	return err
}

func (f files) copy(path string, mode int64, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return f.put(path, mode, int64(len(data)), bytes.NewReader(data))
}

func (f files) link(path, target string) error {
	return f.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: target, Mode: 0o777})
}
