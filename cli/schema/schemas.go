package schema

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/wholefile"
)

// Options configures [Schemas]. Only Server is required.
type Options struct {
	Server resource.Server

	// Cache is a directory for documents of this server, which is made when it is
	// needed; empty means that none are kept beyond the life of the program. A cache
	// that cannot be read or written is as good as none.
	Cache string
}

// Schemas are the schemas of one server. It is not safe for concurrent use.
type Schemas struct {
	opts  Options
	index map[string]entry // by "api/v1", "apis/GROUP/VERSION"; nil until asked for
	docs  map[schema.GroupVersion]*document
}

// An entry of the index says where the document of a group and version is.
type entry struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}

// New returns schemas that have asked for nothing yet.
func New(o Options) *Schemas {
	return &Schemas{opts: o, docs: map[schema.GroupVersion]*document{}}
}

// A document describes the kinds of one group and version. Schemas are decoded when
// they are needed: an object needs few of the thousand that there may be.
type document struct {
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`

	decoded map[string]*model
	kinds   map[schema.GroupVersionKind]*model // the kinds requested so far
}

// limit is far more than the document of any group takes.
const limit = 64 << 20

// of returns the schema of a kind, or nil if there is none.
func (s *Schemas) of(ctx context.Context, kind schema.GroupVersionKind) (*document, *model) {
	gv := kind.GroupVersion()
	doc, asked := s.docs[gv]
	if !asked {
		doc = s.load(ctx, gv)
		s.docs[gv] = doc
	}
	if doc == nil {
		return nil, nil
	}
	return doc, doc.kind(kind)
}

// load gets the document of a group and version from the cache or the server; nil
// means that there is none to be had.
func (s *Schemas) load(ctx context.Context, gv schema.GroupVersion) *document {
	name := "apis/" + gv.String()
	if gv.Group == "" {
		name = "api/" + gv.Version
	}
	if s.index == nil {
		var list struct {
			Paths map[string]entry `json:"paths"`
		}
		text, err := s.get(ctx, "/openapi/v3", nil)
		if err != nil || json.Unmarshal(text, &list) != nil || list.Paths == nil {
			list.Paths = map[string]entry{}
		}
		s.index = list.Paths
	}
	u, err := url.Parse(s.index[name].ServerRelativeURL)
	if err != nil || u.Path == "" {
		return nil
	}
	file := s.file(name, u.Query().Get("hash"))
	if text, err := os.ReadFile(file); err == nil { // an empty name is never there
		if doc := parse(text); doc != nil {
			return doc
		}
	}
	text, err := s.get(ctx, u.Path, u.Query())
	if err != nil {
		return nil
	}
	doc := parse(text)
	if doc != nil && file != "" {
		keep(file, doc)
	}
	return doc
}

func parse(text []byte) *document {
	doc := &document{decoded: map[string]*model{}, kinds: map[schema.GroupVersionKind]*model{}}
	if json.Unmarshal(text, doc) != nil || len(doc.Components.Schemas) == 0 {
		return nil
	}
	return doc
}

func (s *Schemas) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	resp, err := s.opts.Server.Do(ctx, client.RawRequest{Path: path, Query: query, Accept: "application/json"})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("reading the server's %s: %w", path, err)
	}
	return text, nil
}

// file returns the path of the cached document, or "" if it is not cached. Without a
// hash it could not be known whether the document is still current.
func (s *Schemas) file(name, hash string) string {
	if s.opts.Cache == "" || hash == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(hash)) // the server chose the hash; it may be no file name
	return filepath.Join(s.opts.Cache, strings.ReplaceAll(name, "/", "-")+"@"+hex.EncodeToString(sum[:12])+".json")
}

// keep writes the schemas of a document to a file, and removes the older ones.
func keep(file string, doc *document) {
	const private = 0o700
	dir := filepath.Dir(file)
	if os.MkdirAll(dir, private) != nil {
		return
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return
	}
	if wholefile.Write(file, text, 0o600, wholefile.Durable) != nil {
		return
	}
	name, _, _ := strings.Cut(filepath.Base(file), "@")
	old, _ := filepath.Glob(filepath.Join(dir, name+"@*.json"))
	for _, path := range old {
		if path != file {
			_ = os.Remove(path)
		}
	}
}

// kind returns the schema of a kind, or nil.
func (d *document) kind(kind schema.GroupVersionKind) *model {
	if m, asked := d.kinds[kind]; asked {
		return m
	}
	d.kinds[kind] = nil
	for name, text := range d.Components.Schemas {
		if !bytes.Contains(text, []byte(`"x-kubernetes-group-version-kind"`)) {
			continue
		}
		m := d.named(name)
		if m == nil {
			continue
		}
		if slices.Contains(m.Kinds, kind) {
			d.kinds[kind] = m
			return m
		}
	}
	return nil
}

// named returns a schema by its name, or nil.
func (d *document) named(name string) *model {
	if m, done := d.decoded[name]; done {
		return m
	}
	var m *model
	if text, found := d.Components.Schemas[name]; found && json.Unmarshal(text, &m) != nil {
		m = nil
	}
	d.decoded[name] = m
	return m
}
