package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/catalog"
)

// New returns a handler for /api, /api/VERSION, /apis, /apis/GROUP,
// /apis/GROUP/VERSION and /version. A trailing slash does not matter.
func New(c *catalog.Catalog, v version.Info) http.Handler {
	return NewAggregated(c, v, nil)
}

// NewAggregated returns a handler as New does, whose documents have the versions of other servers, too. A may be nil.
func NewAggregated(c *catalog.Catalog, v version.Info, a *aggregation.Aggregator) http.Handler {
	return &handler{catalog: c, version: v, others: a}
}

type handler struct {
	catalog *catalog.Catalog
	version version.Info
	others  *aggregation.Aggregator

	mu   sync.Mutex
	docs *documents // guarded by mu; of the newest snapshot; nil until asked for
}

// documents are the documents about one snapshot of the catalog, and one of the versions of other servers.
type documents struct {
	kinds   *catalog.Snapshot
	remote  *aggregation.Remote
	version version.Info
	proto   *protobuf.Serializer
	encoded map[place]*encoded // as many as there are documents and forms
}

// A place is one document in one form.
type place struct {
	path string
	form form
}

type encoded struct {
	data []byte
	etag string
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimRight(r.URL.Path, "/")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: path}, strings.ToLower(r.Method)))
		return
	}
	whole := path == "/api" || path == "/apis"
	form, ok := negotiate(r.Header.Values("Accept"), whole)
	if !ok {
		refuse(w, notAcceptable(r.Header.Get("Accept"), whole))
		return
	}
	if path == "/version" {
		form = inJSON // a bare struct that has no other encodings
	}
	doc, err := h.document(path, form)
	if err != nil {
		refuse(w, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", string(form))
	header.Set("Vary", "Accept")
	header.Set("ETag", doc.etag)
	header.Set("Cache-Control", "public")
	if r.Header.Get("If-None-Match") == doc.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", fmt.Sprint(len(doc.data)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(doc.data) // a client that has gone needs no answer
	}
}

// document returns the encoded document, which is made once.
func (h *handler) document(path string, f form) (*encoded, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kinds, remote := h.catalog.Snapshot(), h.others.Remote()
	if h.docs == nil || h.docs.kinds != kinds || h.docs.remote != remote {
		h.docs = &documents{
			kinds: kinds, remote: remote, version: h.version,
			proto: protobuf.NewSerializer(kinds.Scheme(), kinds.Scheme()), encoded: map[place]*encoded{},
		}
	}
	at := place{path, f}
	if doc := h.docs.encoded[at]; doc != nil {
		return doc, nil
	}
	data, err := h.docs.encode(path, f)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	doc := &encoded{data: data, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}
	h.docs.encoded[at] = doc
	return doc, nil
}

func (d *documents) encode(path string, f form) ([]byte, error) {
	var doc any
	if path == "/version" {
		doc = d.version
	} else if o := d.object(path, f); o != nil {
		doc = o
	} else {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)
	}
	var buf bytes.Buffer
	switch f {
	case inProtobuf:
		o, ok := doc.(runtime.Object)
		if !ok {
			return nil, apierrors.NewInternalError(fmt.Errorf("%s has no protobuf form", path))
		}
		if err := d.proto.Encode(o, &buf); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return buf.Bytes(), nil
	case inYAML:
		data, err := yaml.Marshal(doc)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return data, nil
	case inJSON, inAggregated:
	}
	encoder := json.NewEncoder(&buf)
	if path == "/version" {
		encoder.SetIndent("", "  ") // people read it with curl
	}
	if err := encoder.Encode(doc); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return buf.Bytes(), nil
}

// object returns the document at path, or nil.
func (d *documents) object(path string, f form) runtime.Object {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case path == "/api" && f == inAggregated:
		return aggregated(d.kinds, true)
	case path == "/apis" && f == inAggregated:
		return withVersions(aggregated(d.kinds, false), d.remote)
	case path == "/api":
		return coreVersions(d.kinds)
	case path == "/apis":
		return withGroups(groupList(d.kinds), d.remote)
	case len(parts) == 2 && parts[0] == "apis" && parts[1] != "":
		if g := withGroup(group(d.kinds, parts[1]), parts[1], d.remote); g != nil {
			return g
		}
	case len(parts) == 2 && parts[0] == "api":
		if l := resourceList(d.kinds, schema.GroupVersion{Version: parts[1]}); l != nil {
			return l
		}
	case len(parts) == 3 && parts[0] == "apis" && parts[1] != "":
		if l := resourceList(d.kinds, schema.GroupVersion{Group: parts[1], Version: parts[2]}); l != nil {
			return l
		}
	}
	return nil
}

// refuse answers with an error, always in JSON: who asks for discovery can read it.
func refuse(w http.ResponseWriter, err error) {
	status := apierrors.NewInternalError(err).ErrStatus
	if s, ok := err.(apierrors.APIStatus); ok { // made here, never wrapped
		status = s.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", string(inJSON))
	w.WriteHeader(int(status.Code))
	data, err := json.Marshal(status)
	if err != nil {
		data = []byte("{}")
	}
	_, _ = io.WriteString(w, string(data)+"\n")
}
