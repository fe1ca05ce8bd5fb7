// Package mirror serves an OCI image layout as a registry that can only be read, over plain HTTP, as a mirror of the
// registries that the names of its images have.
package mirror

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sampan-io/sampan/test/conformance/images"
)

// A Mirror is a registry. It implements [http.Handler] with the part of the OCI distribution specification that pulls need.
type Mirror struct {
	dir       string
	manifests map[string]images.Descriptor // by PATH/REFERENCE
	hosts     []string                     // of the registries, sorted
}

// New returns the mirror for a layout.
func New(dir string) (*Mirror, error) {
	index, err := images.Read(dir)
	if err != nil {
		return nil, err
	}
	m := &Mirror{dir: dir, manifests: map[string]images.Descriptor{}}
	for _, d := range index.Manifests {
		name := d.Annotations[images.NameAnnotation]
		host, path, ok := strings.Cut(name, "/")
		colon := strings.LastIndexByte(path, ':')
		if !ok || colon < 0 {
			return nil, fmt.Errorf("image %q: must be HOST/PATH:TAG", name)
		}
		m.manifests[path[:colon]+"/"+path[colon+1:]] = d
		m.manifests[path[:colon]+"/"+d.Digest] = d
		if !slices.Contains(m.hosts, host) {
			m.hosts = append(m.hosts, host)
		}
	}
	slices.Sort(m.hosts)
	return m, nil
}

var (
	// request is the path of a manifest or blob.
	request = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs)/([A-Za-z0-9_][A-Za-z0-9._:-]*)$`)
	sha256  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// ServeHTTP implements [http.Handler].
func (m *Mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v2/" {
		w.WriteHeader(http.StatusOK)
		return
	}
	parts := request.FindStringSubmatch(r.URL.Path)
	if parts == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	digest, mediaType := parts[3], "application/octet-stream"
	if parts[2] == "manifests" {
		d, ok := m.manifests[parts[1]+"/"+parts[3]]
		if !ok {
			http.NotFound(w, r)
			return
		}
		digest, mediaType = d.Digest, d.MediaType
	}
	if !sha256.MatchString(digest) {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeFile(w, r, images.BlobFile(m.dir, digest))
}

// Configure writes the configuration that makes the server at address the mirror of its registries, HOST/hosts.toml, into a
// directory.
func (m *Mirror) Configure(dir, address string) error {
	for _, host := range m.hosts {
		if err := os.MkdirAll(filepath.Join(dir, host), 0o755); err != nil {
			return err
		}
		text := fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "https://"+host, "http://"+address)
		if err := os.WriteFile(filepath.Join(dir, host, "hosts.toml"), []byte(text), 0o644); err != nil { // no secret
			return err
		}
	}
	return nil
}
