package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The older description, OpenAPI v2, is one document for all group versions. Clients that
// know the newer one need it in one place: kubectl checks a List by it before it sends
// what is in it. So it has the models and no paths.
type older struct {
	Swagger     string            `json:"swagger"`
	Info        info              `json:"info"`
	Paths       struct{}          `json:"paths"`
	Definitions map[string]*model `json:"definitions"`
}

const olderPath = "/openapi/v2"

// olderDocument puts the models of all group versions into one document.
func (h *handler) olderDocument() *older {
	d := &older{Swagger: "2.0", Info: info{Title: "Kubernetes", Version: h.version}, Definitions: map[string]*model{}}
	done := map[schema.GroupVersion]bool{}
	for _, k := range h.catalog.Kinds() {
		gv := k.GroupVersion()
		if done[gv] {
			continue
		}
		done[gv] = true
		for name, m := range build(h.catalog, gv, h.version).Components.Schemas {
			now := m.older()
			if before := d.Definitions[name]; before != nil {
				now.addKinds(before.Kinds) // such as DeleteOptions, which every version has
			}
			d.Definitions[name] = now
		}
	}
	return d
}

// addKinds adds the kinds that the model does not have yet.
func (m *model) addKinds(kinds []kindName) {
	for _, k := range kinds {
		if !slices.Contains(m.Kinds, k) {
			m.Kinds = append(m.Kinds, k)
		}
	}
}

// older returns the model in the words of OpenAPI v2: a reference stands beside other
// fields, and what is one of several types is a string with a format.
func (m *model) older() *model {
	if m == nil {
		return nil
	}
	o := *m
	if len(o.AllOf) == 1 && o.AllOf[0].Ref != "" {
		o.Ref, o.AllOf = o.AllOf[0].Ref, nil
	}
	o.Ref = strings.Replace(o.Ref, schemaRef, "#/definitions/", 1)
	if len(o.OneOf) > 0 {
		o.Type, o.OneOf = "string", nil
	}
	o.Items, o.Additional = o.Items.older(), o.Additional.older()
	o.Properties = map[string]*model{}
	for name, p := range m.Properties {
		o.Properties[name] = p.older()
	}
	o.Kinds = slices.Clone(m.Kinds)
	return &o
}

// protobuf returns the document in the protobuf form of OpenAPI v2 (gnostic's
// openapi.v2).
func (d *older) protobuf() []byte {
	var m message
	m.text(1, d.Swagger)
	m.sub(2, func(m *message) {
		m.text(1, d.Info.Title)
		m.text(2, d.Info.Version)
	})
	m.sub(8, func(*message) {})
	m.sub(9, func(m *message) { named(m, 1, d.Definitions, (*message).olderModel) })
	return m
}

func (m *message) olderModel(s *model) {
	m.text(1, s.Ref)
	m.text(2, s.Format)
	m.text(4, s.Description)
	if s.Default != nil {
		m.sub(5, func(m *message) { m.text(2, string(s.Default)) })
	}
	for _, name := range s.Required {
		m.text(19, name)
	}
	if s.Additional != nil {
		m.sub(21, func(m *message) { m.sub(1, func(m *message) { m.olderModel(s.Additional) }) })
	}
	if s.Type != "" {
		m.sub(22, func(m *message) { m.text(1, s.Type) })
	}
	if s.Items != nil {
		m.sub(23, func(m *message) { m.sub(1, func(m *message) { m.olderModel(s.Items) }) })
	}
	if len(s.Properties) > 0 {
		m.sub(25, func(m *message) { named(m, 1, s.Properties, (*message).olderModel) })
	}
	const extensions protowire.Number = 31
	if len(s.Kinds) > 0 {
		m.extension(extensions, "x-kubernetes-group-version-kind", s.Kinds)
	}
	m.merging(extensions, s)
}

// olderForm returns the document in one form, and makes it on the first request.
func (h *handler) olderForm(form string) (*packed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.older[form]; p != nil {
		return p, nil
	}
	d := h.olderDocument()
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("openapi v2: %w", err)
	}
	hash := hashOf(data)
	if form == inProtobuf {
		data = d.protobuf()
	}
	p, err := pack(data)
	if err != nil {
		return nil, fmt.Errorf("openapi v2: %w", err)
	}
	p.form, p.hash = form, hash
	if form == inProtobuf {
		p.form = olderProtobuf
	}
	if h.older == nil {
		h.older = map[string]*packed{}
	}
	h.older[form] = p
	return p, nil
}

// serveOlder answers a request for the older document.
func (h *handler) serveOlder(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	form := negotiate(r.Header.Values("Accept"))
	if form == "" {
		http.Error(w, "the OpenAPI document is served as "+inJSON+" and "+olderProtobuf, http.StatusNotAcceptable)
		return
	}
	doc, err := h.olderForm(form)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	doc.serve(w, r)
}
