package openapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The older description, OpenAPI v2, is one document for all group versions. It is made from the
// newer ones.
type (
	// older is the document, or a group version's part of it.
	older struct {
		Paths       map[string]*olderPathItem  `json:"paths"`
		Definitions map[string]*model          `json:"definitions"`
		Parameters  map[string]*olderParameter `json:"parameters"`
	}

	olderPathItem struct {
		Get        *olderOperation   `json:"get,omitempty"`
		Put        *olderOperation   `json:"put,omitempty"`
		Post       *olderOperation   `json:"post,omitempty"`
		Delete     *olderOperation   `json:"delete,omitempty"`
		Options    *olderOperation   `json:"options,omitempty"`
		Head       *olderOperation   `json:"head,omitempty"`
		Patch      *olderOperation   `json:"patch,omitempty"`
		Parameters []*olderParameter `json:"parameters,omitempty"`
	}

	olderOperation struct {
		Consumes    []string                 `json:"consumes,omitempty"`
		Produces    []string                 `json:"produces,omitempty"`
		Schemes     []string                 `json:"schemes,omitempty"`
		Tags        []string                 `json:"tags,omitempty"`
		Description string                   `json:"description,omitempty"`
		OperationID string                   `json:"operationId"`
		Parameters  []*olderParameter        `json:"parameters,omitempty"`
		Responses   map[string]olderResponse `json:"responses"`
		Action      string                   `json:"x-kubernetes-action,omitempty"`
		Kind        *kindName                `json:"x-kubernetes-group-version-kind,omitempty"`
	}

	// olderParameter is a $ref, the body, or a parameter of the query or the path.
	olderParameter struct {
		Ref         string `json:"$ref,omitempty"`
		Name        string `json:"name,omitempty"`
		In          string `json:"in,omitempty"`
		Description string `json:"description,omitempty"`
		Required    bool   `json:"required,omitempty"`
		Schema      *model `json:"schema,omitempty"` // of the body
		Type        string `json:"type,omitempty"`   // of others
		UniqueItems bool   `json:"uniqueItems,omitempty"`
	}

	olderResponse struct {
		Description string `json:"description"`
		Schema      *model `json:"schema,omitempty"`
	}
)

const olderPath = "/openapi/v2"

// older returns the operations of a path in the words of OpenAPI v2.
func (p pathItem) older() *olderPathItem {
	o := &olderPathItem{}
	for method, to := range map[string]**olderOperation{
		"get": &o.Get, "put": &o.Put, "post": &o.Post, "delete": &o.Delete, "options": &o.Options, "head": &o.Head, "patch": &o.Patch,
	} {
		if op, ok := p[method].(*operation); ok {
			*to = op.older()
		}
	}
	if ps, ok := p["parameters"].([]*parameter); ok {
		o.Parameters = olderParameters(ps)
	}
	return o
}

// older returns an operation in the words of OpenAPI v2, where the body is a parameter and media
// types stand apart from schemas.
func (op *operation) older() *olderOperation {
	o := &olderOperation{
		Consumes:    []string{"*/*"},
		Schemes:     []string{"https"},
		Tags:        op.Tags,
		Description: op.Description,
		OperationID: op.OperationID,
		Responses:   map[string]olderResponse{},
		Action:      op.Action,
		Kind:        op.Kind,
	}
	if b := op.RequestBody; b != nil {
		o.Consumes = slices.Sorted(maps.Keys(b.Content))
		o.Parameters = append(o.Parameters, &olderParameter{Name: "body", In: "body", Required: b.Required, Schema: schemaOf(b.Content)})
	}
	o.Parameters = append(o.Parameters, olderParameters(op.Parameters)...)
	for code, r := range op.Responses {
		o.Responses[code] = olderResponse{r.Description, schemaOf(r.Content)}
		if len(r.Content) > len(o.Produces) {
			o.Produces = slices.Sorted(maps.Keys(r.Content))
		}
	}
	return o
}

// schemaOf returns the schema of content, which is the same in each of its media types.
func schemaOf(content map[string]media) *model {
	for _, c := range content {
		return c.Schema.older()
	}
	return nil
}

func olderParameters(ps []*parameter) []*olderParameter {
	all := make([]*olderParameter, len(ps))
	for i, p := range ps {
		all[i] = p.older()
	}
	return all
}

func (p *parameter) older() *olderParameter {
	o := &olderParameter{
		Ref:  strings.Replace(p.Ref, "#/components/parameters/", "#/parameters/", 1),
		Name: p.Name, In: p.In, Description: p.Description, Required: p.Required,
	}
	if p.Schema != nil {
		o.Type, o.UniqueItems = p.Schema.Type, true
	}
	return o
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
// fields, a value of several types is a string with a format, and there are no defaults.
func (m *model) older() *model {
	if m == nil {
		return nil
	}
	if m.custom != nil {
		s := olderCustom(m.custom)
		o := modelOf(s)
		o.Kinds, o.custom = slices.Clone(m.Kinds), s
		return o
	}
	o := *m
	o.Default = nil
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

func (m *message) olderPathItem(p *olderPathItem) {
	for field, op := range []*olderOperation{2: p.Get, 3: p.Put, 4: p.Post, 5: p.Delete, 6: p.Options, 7: p.Head, 8: p.Patch} {
		if op != nil {
			m.sub(protowire.Number(field), func(m *message) { m.olderOperation(op) })
		}
	}
	m.olderParameters(9, p.Parameters)
}

func (m *message) olderOperation(op *olderOperation) {
	m.texts(1, op.Tags)
	m.text(3, op.Description)
	m.text(5, op.OperationID)
	m.texts(6, op.Produces)
	m.texts(7, op.Consumes)
	m.olderParameters(8, op.Parameters)
	m.sub(9, func(m *message) {
		named(m, 1, op.Responses, func(m *message, r olderResponse) {
			m.sub(1, func(m *message) {
				m.text(1, r.Description)
				if r.Schema != nil {
					m.sub(2, func(m *message) { m.sub(1, func(m *message) { m.olderModel(r.Schema) }) })
				}
			})
		})
	})
	m.texts(10, op.Schemes)
	const extensions protowire.Number = 13
	if op.Action != "" {
		m.extension(extensions, "x-kubernetes-action", op.Action)
	}
	if op.Kind != nil {
		m.extension(extensions, "x-kubernetes-group-version-kind", op.Kind)
	}
}

// olderParameters adds parameters and references to parameters.
func (m *message) olderParameters(field protowire.Number, ps []*olderParameter) {
	for _, p := range ps {
		m.sub(field, func(m *message) {
			if p.Ref != "" {
				m.sub(2, func(m *message) { m.text(1, p.Ref) })
				return
			}
			m.sub(1, func(m *message) { m.olderParameter(p) })
		})
	}
}

func (m *message) olderParameter(p *olderParameter) {
	if p.In == "body" {
		m.sub(1, func(m *message) {
			m.text(1, p.Description)
			m.text(2, p.Name)
			m.text(3, p.In)
			m.truth(4, p.Required)
			m.sub(5, func(m *message) { m.olderModel(p.Schema) })
		})
		return
	}
	const query, path protowire.Number = 3, 4
	in, typ, unique := query, protowire.Number(6), protowire.Number(20)
	if p.In == "path" {
		in, typ, unique = path, 5, 19
	}
	m.sub(2, func(m *message) {
		m.sub(in, func(m *message) {
			m.truth(1, p.Required)
			m.text(2, p.In)
			m.text(3, p.Description)
			m.text(4, p.Name)
			m.text(typ, p.Type)
			m.truth(unique, p.UniqueItems)
		})
	})
}

func (m *message) olderModel(s *model) {
	m.text(1, s.Ref)
	m.text(2, s.Format)
	m.text(4, s.Description)
	m.texts(19, s.Required)
	m.enum(20, s.Enum)
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
