package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/catalog"
)

// New returns a handler for /openapi/v3 and the paths below it, and for /openapi/v2. Version is the
// version of the server in the documents: "v1.37.2+sampan.0.1.0".
func New(c *catalog.Catalog, version string) http.Handler {
	return NewAggregated(c, version, nil)
}

// NewAggregated returns a handler as New does, whose index names the documents of other servers, too. It does not serve these.
// A may be nil.
func NewAggregated(c *catalog.Catalog, version string, a *aggregation.Aggregator) http.Handler {
	return &handler{catalog: c, version: version, build: sync.OnceValue(buildID), others: a, olders: map[string]*olderParts{}}
}

type handler struct {
	catalog *catalog.Catalog
	version string
	build   func() string // names this build of the program
	others  *aggregation.Aggregator

	mu   sync.Mutex
	docs *documents // guarded by mu; of the newest snapshot

	olders map[string]*olderParts // guarded by mu; of the document of OpenAPI v2, by form
}

// documents are the documents about one snapshot of the catalog.
type documents struct {
	kinds   *catalog.Snapshot
	version string
	build   string             // names this build of the program
	built   map[string]*packed // by the path of the group version; nil until asked for
	before  map[string]*packed // of the snapshot before; those of which the kinds are the same stay
	older   map[string]*packed // the document of OpenAPI v2, by form
}

// current returns the documents of the newest snapshot. The caller holds mu.
func (h *handler) current() *documents {
	if kinds := h.catalog.Snapshot(); h.docs == nil || h.docs.kinds != kinds {
		docs := &documents{kinds: kinds, version: h.version, build: h.build(), older: map[string]*packed{}}
		if h.docs != nil {
			if docs.before = h.docs.built; docs.before == nil {
				docs.before = h.docs.before
			}
		}
		h.docs = docs
	}
	return h.docs
}

// packed is a document as it is kept.
type packed struct {
	gv     schema.GroupVersion
	kinds  []*catalog.Kind // in it
	proto  *packed         // the same in protobuf; nil until asked for. Guarded by the mutex of the handler
	form   string          // media type
	zipped []byte          // gzip of the encoded document; nil until asked for. Guarded by the mutex of the handler
	size   int             // of the encoded document
	hash   string          // its fingerprint, by which the index names all forms
}

// The forms of a document. Clients ask for protobuf under an older name, too.
const (
	inJSON      = "application/json"
	inProtobuf  = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	oldProtobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"

	// Those of the older document.
	olderProtobuf  = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	oldestProtobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

const prefix = "/openapi/v3"

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is served here", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == olderPath {
		h.serveOlder(w, r)
		return
	}
	path, ok := strings.CutPrefix(strings.TrimRight(r.URL.Path, "/"), prefix)
	if !ok {
		http.NotFound(w, r)
		return
	}
	docs, err := h.documents()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if path == "" {
		serveIndex(w, docs, h.others.Remote())
		return
	}
	name := strings.TrimPrefix(path, "/")
	doc := docs[name]
	if doc == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	form := negotiate(r.Header.Values("Accept"))
	if form == "" {
		http.Error(w, "OpenAPI documents are served as "+inJSON+" and "+inProtobuf, http.StatusNotAcceptable)
		return
	}
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != doc.hash {
			http.Redirect(w, r, relativeURL(name, doc), http.StatusMovedPermanently)
			return
		}
		// A document with this hash never changes.
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	if doc, err = h.made(doc, form); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	doc.serve(w, r)
}

// made returns a document in one form, and makes it on the first request.
func (h *handler) made(doc *packed, form string) (*packed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case form == inProtobuf && doc.proto != nil:
		return doc.proto, nil
	case form == inProtobuf:
		p, err := pack(build(doc.gv, doc.kinds, h.version).protobuf())
		if err != nil {
			return nil, err
		}
		p.gv, p.form, p.hash = doc.gv, inProtobuf, doc.hash
		doc.proto = p
		return p, nil
	case doc.zipped == nil:
		data, err := json.Marshal(build(doc.gv, doc.kinds, h.version))
		if err != nil {
			return nil, err
		}
		p, err := pack(data)
		if err != nil {
			return nil, err
		}
		doc.zipped, doc.size = p.zipped, p.size
	}
	return doc, nil
}

func serveIndex(w http.ResponseWriter, docs map[string]*packed, remote *aggregation.Remote) {
	type entry struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	}
	index := struct {
		Paths map[string]entry `json:"paths"`
	}{map[string]entry{}}
	for name, doc := range docs {
		index.Paths[name] = entry{relativeURL(name, doc)}
	}
	for _, v := range remote.Versions() {
		if delete(index.Paths, root(v.GroupVersion)); v.OpenAPI != "" {
			index.Paths[root(v.GroupVersion)] = entry{v.OpenAPI}
		}
	}
	data, err := json.Marshal(index)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a client that has gone needs no answer
}

func relativeURL(name string, doc *packed) string {
	return prefix + "/" + name + "?hash=" + url.QueryEscape(doc.hash)
}

// serve writes the document, compressed if the client takes that.
func (d *packed) serve(w http.ResponseWriter, r *http.Request) {
	etag := `"` + d.hash + `"`
	if d.form != inJSON {
		etag = `"` + d.hash + `-protobuf"`
	}
	header := w.Header()
	header.Set("Content-Type", d.form)
	header.Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		header.Set("Content-Length", fmt.Sprint(len(d.zipped)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(d.zipped)
		}
		return
	}
	header.Set("Content-Length", fmt.Sprint(d.size))
	if r.Method == http.MethodGet {
		if zr, err := gzip.NewReader(bytes.NewReader(d.zipped)); err == nil {
			_, _ = io.Copy(w, zr) // we compressed it ourselves
		}
	}
}

// documents returns the places of all documents. A document is made when a client reads it: there may be a thousand, of which
// few are read.
func (h *handler) documents() (map[string]*packed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current().all()
}

func (d *documents) all() (map[string]*packed, error) {
	if d.built != nil {
		return d.built, nil
	}
	built := map[string]*packed{}
	for _, gv := range d.kinds.GroupVersions() {
		kinds := d.kinds.In(gv)
		if same := d.before[root(gv)]; same != nil && slices.Equal(same.kinds, kinds) {
			built[root(gv)] = same
			continue
		}
		hash, err := d.fingerprint(kinds)
		if err != nil {
			return nil, fmt.Errorf("openapi of %s: %w", gv, err)
		}
		built[root(gv)] = &packed{gv: gv, kinds: kinds, form: inJSON, hash: hash}
	}
	d.before = nil
	d.built = built
	return built, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// pack compresses an encoded document.
func pack(data []byte) (*packed, error) {
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	if _, err := zw.Write(data); err != nil {
		return nil, err
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	return &packed{zipped: bytes.Clone(zipped.Bytes()), size: len(data)}, nil
}

// negotiate returns the first form that the Accept headers name, or "".
func negotiate(accept []string) string {
	if strings.TrimSpace(strings.Join(accept, "")) == "" {
		return inJSON
	}
	for clause := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, _, err := mime.ParseMediaType(clause)
		if err != nil {
			// The older name has a character that media types cannot have.
			media, _, _ = strings.Cut(strings.TrimSpace(clause), ";")
		}
		switch media {
		case inJSON, "application/*", "*/*":
			return inJSON
		case inProtobuf, oldProtobuf, olderProtobuf, oldestProtobuf:
			return inProtobuf
		}
	}
	return ""
}
