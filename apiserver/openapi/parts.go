package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/catalog"
)

// The document of OpenAPI v2 is joined of parts: one of all versions that have kinds with Go types, which share most of their
// definitions, one of each other version, and one of each version that another server serves. A part is made once, however often
// definitions of custom resources change.

// olderParts are the parts in one form, and the document that was made of them.
type olderParts struct {
	of       *catalog.Snapshot   // of which doc is
	ofOthers *aggregation.Remote // of which doc is
	doc      *packed
	typed    *olderPart
	custom   map[string]*olderPart  // by the path of the version
	others   map[string]*othersPart // by the path of the version
}

// An olderPart is the part of versions in the document.
type olderPart struct {
	of                 []*packed // their newer documents
	paths, definitions segment   // the first part has no separator in front of it
	names              []string  // of the definitions
	kinded             map[string]*model
	parameters         map[string]*olderParameter
}

// The definitions of these names are in each version, with a kind of its own.
var kinded = []string{modelName(reflect.TypeFor[metav1.DeleteOptions]()), modelName(reflect.TypeFor[metav1.WatchEvent]())}

// olderForm returns the document in one form, and makes its missing parts.
func (h *handler) olderForm(form string) (*packed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	docs := h.current()
	built, err := docs.all()
	if err != nil {
		return nil, err
	}
	parts := h.olders[form]
	if parts == nil {
		parts = &olderParts{custom: map[string]*olderPart{}}
		h.olders[form] = parts
	}
	others := h.others.Remote()
	if parts.of == docs.kinds && parts.ofOthers == others {
		return parts.doc, nil
	}
	doc, err := parts.update(docs, built, others, form)
	if err != nil {
		return nil, fmt.Errorf("openapi v2: %w", err)
	}
	parts.of, parts.ofOthers, parts.doc = docs.kinds, others, doc
	return doc, nil
}

// update makes the parts that are not there, and joins the document.
func (p *olderParts) update(docs *documents, built map[string]*packed, others *aggregation.Remote, form string) (*packed, error) {
	c := &compressor{}
	var typed, custom []schema.GroupVersion
	var ofTyped []*packed
	names := []string{docs.version}
	for _, gv := range docs.kinds.GroupVersions() {
		doc := built[root(gv)]
		if names = append(names, root(gv), doc.hash); slices.ContainsFunc(doc.kinds, func(k *catalog.Kind) bool { return !k.Untyped() }) {
			typed, ofTyped = append(typed, gv), append(ofTyped, doc)
			continue
		}
		if others.Serves(gv) {
			names = append(names, "served elsewhere")
			continue
		}
		custom = append(custom, gv)
	}
	if p.typed == nil || !slices.Equal(p.typed.of, ofTyped) {
		whole := docs.typedOlder(typed)
		part := &olderPart{of: ofTyped, kinded: map[string]*model{}, parameters: whole.Parameters}
		for _, name := range kinded {
			part.kinded[name] = whole.Definitions[name]
			delete(whole.Definitions, name)
		}
		if err := part.pack(c, whole, form, ""); err != nil {
			return nil, err
		}
		p.typed = part
	}
	shared := commonModels()
	present := make(map[string]*olderPart, len(custom))
	for _, gv := range custom {
		doc := built[root(gv)]
		part := p.custom[root(gv)]
		if part == nil || part.of[0] != doc {
			part = &olderPart{of: []*packed{doc}}
			if err := part.pack(c, customOlder(gv, doc.kinds, shared), form, ","); err != nil {
				return nil, err
			}
		}
		present[root(gv)] = part
	}
	p.custom = present
	away := p.updateOthers(c, others, typed, form)
	for _, part := range away {
		names = append(names, part.of.Hash)
	}
	return p.join(c, docs.version, custom, away, form, hashOf([]byte(strings.Join(names, "\n"))))
}

// pack encodes the part.
func (p *olderPart) pack(c *compressor, add *older, form, separator string) (err error) {
	p.names = slices.AppendSeq(p.names, maps.Keys(add.Definitions))
	paths, err := entries(form, 2, add.Paths, (*message).olderPathItem, separator)
	if err != nil {
		return err
	}
	definitions, err := entries(form, 1, add.Definitions, (*message).olderModel, separator)
	if err != nil {
		return err
	}
	if p.paths, err = c.segment(paths); err == nil {
		p.definitions, err = c.segment(definitions)
	}
	return err
}

// entries returns the members of an object in one form, without the object around them: in protobuf with their field
// number, in JSON after the separator if there are any.
func entries[T any](form string, field protowire.Number, values map[string]T, write func(*message, T), separator string) ([]byte, error) {
	if form == inProtobuf {
		var m message
		named(&m, field, values, write)
		return m, nil
	}
	data, err := json.Marshal(values)
	if err != nil || len(values) == 0 {
		return nil, err
	}
	return append([]byte(separator), bytes.TrimSuffix(bytes.TrimPrefix(data, []byte("{")), []byte("}"))...), nil
}

// join puts the parts together.
func (p *olderParts) join(c *compressor, version string, custom []schema.GroupVersion, others []*othersPart, form, hash string) (*packed, error) {
	last := map[string]*model{}
	for name, m := range p.typed.kinded {
		if m == nil {
			continue
		}
		all := *m
		all.Kinds = slices.Clone(m.Kinds)
		for _, gv := range custom {
			all.Kinds = append(all.Kinds, nameOf(gv.WithKind(name[strings.LastIndexByte(name, '.')+1:])))
		}
		last[name] = &all
	}
	kinds, err := entries(form, 1, last, (*message).olderModel, ",")
	if err != nil {
		return nil, err
	}
	parameters, err := entries(form, 1, p.typed.parameters, (*message).olderParameter, "")
	if err != nil {
		return nil, err
	}
	paths, definitions := []segment{p.typed.paths}, []segment{p.typed.definitions}
	for _, gv := range custom {
		part := p.custom[root(gv)]
		paths, definitions = append(paths, part.paths), append(definitions, part.definitions)
	}
	var moreParameters []segment
	for _, part := range others {
		paths, definitions, moreParameters = append(paths, part.paths), append(definitions, part.definitions), append(moreParameters, part.parameters)
	}
	var all []segment
	add := func(data []byte) {
		s, failed := c.segment(data)
		if all = append(all, s); failed != nil {
			err = failed
		}
	}
	between := olderFrame(form, version, total(paths), total(definitions)+len(kinds), len(parameters)+total(moreParameters))
	add(between[0])
	all = append(all, paths...)
	add(between[1])
	all = append(all, definitions...)
	add(slices.Concat(kinds, between[2], parameters))
	all = append(all, moreParameters...)
	add(between[3])
	if err != nil {
		return nil, err
	}
	doc := &packed{form: form, hash: hash}
	if form == inProtobuf {
		doc.form = olderProtobuf
	}
	doc.zipped, doc.size = join(all)
	return doc, nil
}

func total(segments []segment) (size int) {
	for _, s := range segments {
		size += s.size
	}
	return size
}

// olderFrame returns the text before the paths, the definitions and the parameters, and after these. Sizes are those of
// the members; only protobuf (gnostic's openapi.v2) needs them.
func olderFrame(form, version string, paths, definitions, parameters int) [4][]byte {
	about := info{Title: "Kubernetes", Version: version}
	if form == inProtobuf {
		var m message
		m.text(1, "2.0")
		m.sub(2, func(m *message) {
			m.text(1, about.Title)
			m.text(2, about.Version)
		})
		begin := func(m []byte, field protowire.Number, size int) []byte {
			return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.BytesType), uint64(size)) // a length
		}
		return [4][]byte{begin(m, 8, paths), begin(nil, 9, definitions), begin(nil, 10, parameters), nil}
	}
	title, _ := json.Marshal(about) // strings have a JSON form
	return [4][]byte{
		slices.Concat([]byte(`{"swagger":"2.0","info":`), title, []byte(`,"paths":{`)),
		[]byte(`},"definitions":{`), []byte(`},"parameters":{`), []byte(`}}`),
	}
}

// typedOlder puts the models and paths of versions into one.
func (docs *documents) typedOlder(versions []schema.GroupVersion) *older {
	d := &older{Paths: map[string]*olderPathItem{}, Definitions: map[string]*model{}, Parameters: map[string]*olderParameter{}}
	for _, gv := range versions {
		newer := build(gv, docs.kinds.In(gv), docs.version)
		for name, m := range newer.Components.Schemas {
			now := m.older()
			if before := d.Definitions[name]; before != nil {
				now.addKinds(before.Kinds) // such as DeleteOptions, which every version has
			}
			d.Definitions[name] = now
		}
		for name, p := range newer.Components.Parameters {
			d.Parameters[name] = p.older()
		}
		for path, item := range newer.Paths {
			d.Paths[path] = item.older()
		}
	}
	return d
}

// commonModels returns the models that kinds without Go types refer to. Versions with Go types define them.
func commonModels() models {
	ms := models{patchModel: {Type: "object"}}
	for _, t := range []reflect.Type{
		reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.ListMeta](), reflect.TypeFor[metav1.Status](),
		reflect.TypeFor[metav1.DeleteOptions](), reflect.TypeFor[metav1.WatchEvent](), reflect.TypeFor[autoscalingv1.Scale](),
	} {
		ms.of(t)
	}
	return ms
}

// customOlder returns the additions of a version of kinds without Go types to the common models, which it leaves as is.
func customOlder(gv schema.GroupVersion, kinds []*catalog.Kind, common models) *older {
	b := &builder{gv: gv, models: maps.Clone(common), paths: map[string]pathItem{}}
	scale := modelName(reflect.TypeFor[autoscalingv1.Scale]())
	b.models[scale] = &model{} // in place of the common one, because it gets a kind
	for _, k := range kinds {
		b.kind(k)
	}
	add := &older{Paths: map[string]*olderPathItem{}, Definitions: map[string]*model{}}
	for name, m := range b.models {
		if common[name] == nil {
			add.Definitions[name] = m.older()
		}
	}
	for path, item := range b.paths {
		add.Paths[path] = item.older()
	}
	return add
}
