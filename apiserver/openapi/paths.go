package openapi

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
)

const patchModel = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"

// root returns the path of a group version: "api/v1", "apis/batch/v1".
func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// build returns the document of one group version.
func build(gv schema.GroupVersion, kinds []*catalog.Kind, version string) *document {
	b := &builder{gv: gv, models: models{}, paths: map[string]pathItem{}}
	b.models[patchModel] = &model{Type: "object", Description: "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body."}
	for _, k := range kinds {
		b.kind(k)
	}
	meta := schema.GroupVersion{Version: "v1"}
	b.object(&metav1.Status{}, meta.WithKind("Status"))
	b.object(&metav1.DeleteOptions{}, meta.WithKind("DeleteOptions"), gv.WithKind("DeleteOptions"))
	b.object(&metav1.WatchEvent{}, meta.WithKind("WatchEvent"), gv.WithKind("WatchEvent"))
	b.models.mark()
	return &document{
		OpenAPI:    "3.0.0",
		Info:       info{Title: "Kubernetes", Version: version},
		Paths:      b.paths,
		Components: components{Schemas: b.models, Parameters: parameters()},
	}
}

// A builder makes the document of one group version.
type builder struct {
	gv      schema.GroupVersion
	untyped bool // the kind has no Go type
	models  models
	paths   map[string]pathItem
}

// object adds the schema of o, which has the given kinds, and returns a reference to it.
func (b *builder) object(o any, kinds ...schema.GroupVersionKind) *model {
	ref := b.models.of(reflect.TypeOf(o))
	m := b.models[strings.TrimPrefix(ref.Ref, schemaRef)]
	if m == nil {
		return ref
	}
	for _, gvk := range kinds {
		if !slices.Contains(m.Kinds, nameOf(gvk)) {
			m.Kinds = append(m.Kinds, nameOf(gvk))
		}
	}
	return ref
}

// verbs of a kind or subresource.
type verbs []string

func (v verbs) has(verb string) bool { return slices.Contains(v, verb) }

func (b *builder) kind(k *catalog.Kind) {
	var one, list *model
	if b.untyped = k.Untyped(); b.untyped {
		one, list = b.custom(k)
	} else {
		one = b.object(k.New(), k.GroupVersionKind)
	}
	if list == nil && k.NewList != nil {
		list = b.object(k.NewList(), b.gv.WithKind(k.Kind+"List"))
	}
	v := verbs(k.Verbs)
	if v == nil {
		v = catalog.StandardVerbs
	}
	at, scoped := "/"+root(b.gv)+"/"+k.Resource, k.Kind
	var where []string // parameters of the path
	if k.Namespaced {
		if v.has("list") {
			b.paths[at] = pathItem{"get": b.listing(k, list, "list", k.Kind+"ForAllNamespaces", v.has("watch"))}
		}
		at, scoped, where = "/"+root(b.gv)+"/namespaces/{namespace}/"+k.Resource, "Namespaced"+k.Kind, []string{"namespace"}
	}

	all := pathItem{}
	if v.has("list") {
		all["get"] = b.listing(k, list, "list", scoped, v.has("watch"))
	}
	if v.has("create") {
		all["post"] = b.writing(k.GroupVersionKind, one, "post", "create", scoped, "create a "+k.Kind)
	}
	if v.has("deletecollection") {
		op := b.listing(k, b.object(&metav1.Status{}), "deletecollection", scoped, false)
		op.OperationID = b.id("delete", "Collection"+scoped)
		op.Description = "delete collection of " + k.Kind
		op.Parameters = append(op.Parameters, refs("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy", "sendInitialEvents")...)
		op.RequestBody = &body{Content: map[string]media{"*/*": {b.object(&metav1.DeleteOptions{})}}}
		all["delete"] = op
	}
	b.put(at, all, where)

	single := pathItem{}
	if v.has("get") {
		op := b.operation(k.GroupVersionKind, "get", "read", scoped, "read the specified "+k.Kind, one)
		op.Parameters = refs("timeoutSeconds", "until", "untilMissing")
		single["get"] = op
	}
	b.changing(single, k.GroupVersionKind, one, v, scoped, "the specified "+k.Kind)
	if v.has("delete") {
		op := b.operation(k.GroupVersionKind, "delete", "delete", scoped, "delete a "+k.Kind, b.object(&metav1.Status{}))
		op.Parameters = refs("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
		op.RequestBody = &body{Content: map[string]media{"*/*": {b.object(&metav1.DeleteOptions{})}}}
		single["delete"] = op
	}
	where = append(where, "name")
	b.put(at+"/{name}", single, where)
	for i := range k.Subresources {
		b.subresource(k, &k.Subresources[i], one, at+"/{name}/", scoped, where)
	}
}

func (b *builder) subresource(k *catalog.Kind, s *catalog.Subresource, one *model, at, scoped string, where []string) {
	gvk, bodyModel := k.GroupVersionKind, one
	if body := s.Body(); body != nil {
		gvk, bodyModel = body.Kind, b.object(body.New(), body.Kind)
	}
	if a, ok := s.Shape.(catalog.Action); ok && a.Alias != "" {
		post := b.writing(gvk, bodyModel, "post", "create", "Namespaced"+gvk.Kind, "create a "+gvk.Kind)
		b.put("/"+root(b.gv)+"/namespaces/{namespace}/"+a.Alias, pathItem{"post": post}, []string{"namespace"})
	}
	scoped += title(s.Name)
	v, what := verbs(s.Verbs), s.Name+" of the specified "+k.Kind
	item := pathItem{}
	if stream, ok := s.Shape.(catalog.Stream); ok {
		b.stream(gvk, s, stream, at+s.Name, scoped, what, where)
		return
	}
	if v.has("get") {
		item["get"] = b.operation(gvk, "get", "read", scoped, "read "+what, bodyModel)
	}
	if v.has("create") {
		item["post"] = b.writing(gvk, bodyModel, "post", "create", scoped, "create "+what)
	}
	b.changing(item, gvk, bodyModel, v, scoped, what)
	b.put(at+s.Name, item, where)
}

// stream adds the paths of a connection. Behind a proxy any path may follow.
func (b *builder) stream(gvk schema.GroupVersionKind, s *catalog.Subresource, stream catalog.Stream, at, scoped, what string, where []string) {
	methods := []string{}
	for _, verb := range s.Verbs {
		if method := map[string]string{"get": "get", "create": "post", "update": "put", "patch": "patch", "delete": "delete"}[verb]; method != "" {
			methods = append(methods, method)
		}
	}
	if stream.Ported {
		methods = append(methods, "head", "options")
	}
	item := pathItem{}
	for _, method := range methods {
		item[method] = b.connection(gvk, s, method, scoped, what)
	}
	b.put(at, item, where)
	if !stream.Ported {
		return
	}
	item = pathItem{}
	for _, method := range methods {
		item[method] = b.connection(gvk, s, method, scoped+"WithPath", what)
	}
	b.put(at+"/{path}", item, append(slices.Clone(where), "path"))
}

func (b *builder) connection(gvk schema.GroupVersionKind, s *catalog.Subresource, method, scoped, what string) *operation {
	text := &model{Type: "string"}
	op := b.operation(gvk, "connect", "connect", title(method)+scoped, "connect "+strings.ToUpper(method)+" requests to "+what, text)
	op.Parameters = streamParameters(s.Name)
	if s.Name == "log" {
		op.Action, op.OperationID, op.Description = method, b.id("read", scoped), "read "+what
		op.Parameters = logParameters()
	}
	op.Responses["200"] = response{Description: "OK", Content: map[string]media{"*/*": {text}}}
	return op
}

// put adds a path that has operations.
func (b *builder) put(at string, item pathItem, where []string) {
	if len(item) > 0 {
		item["parameters"] = refs(append(slices.Clone(where), "pretty")...)
		b.paths[at] = item
	}
}

// changing adds update and patch.
func (b *builder) changing(item pathItem, gvk schema.GroupVersionKind, m *model, v verbs, scoped, what string) {
	if v.has("update") {
		item["put"] = b.writing(gvk, m, "put", "replace", scoped, "replace "+what)
	}
	if v.has("patch") {
		op := b.writing(gvk, m, "patch", "patch", scoped, "partially update "+what)
		op.RequestBody.Content = map[string]media{}
		for _, t := range []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"} {
			if b.untyped && t == "application/strategic-merge-patch+json" {
				continue // kubectl looks here how it can patch
			}
			op.RequestBody.Content[t] = media{refTo(patchModel)}
		}
		op.Parameters = append(op.Parameters, force())
		item["patch"] = op
	}
}

func (b *builder) operation(gvk schema.GroupVersionKind, action, verb, scoped, text string, answer *model) *operation {
	kind := nameOf(gvk)
	content := map[string]media{}
	for _, t := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf} {
		content[t] = media{answer}
	}
	return &operation{
		Tags:        []string{groupTag(b.gv.Group) + "_" + b.gv.Version},
		Description: text,
		OperationID: b.id(verb, scoped),
		Responses: map[string]response{
			"200": {Description: "OK", Content: content},
			"401": {Description: "Unauthorized"},
		},
		Action: action,
		Kind:   &kind,
	}
}

func (b *builder) listing(k *catalog.Kind, list *model, action, scoped string, watch bool) *operation {
	op := b.operation(k.GroupVersionKind, action, action, scoped, "list or watch objects of kind "+k.Kind, list)
	op.Parameters = refs("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch", "timeoutSeconds")
	if action == "list" {
		op.Parameters = append(op.Parameters, refs("until", "untilMissing")...)
	}
	if watch {
		op.Parameters = append(op.Parameters, refs("allowWatchBookmarks", "sendInitialEvents", "watch")...)
		for _, t := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			op.Responses["200"].Content[t+";stream=watch"] = media{list}
		}
	}
	return op
}

// writing is an operation with a body. Its parameters stand in full: kubectl
// looks for fieldValidation here, and only if it finds it leaves the checking of fields to the
// server.
func (b *builder) writing(gvk schema.GroupVersionKind, m *model, action, verb, scoped, text string) *operation {
	op := b.operation(gvk, action, verb, scoped, text, m)
	op.RequestBody = &body{Content: map[string]media{"*/*": {m}}, Required: true}
	if action != "put" {
		created := op.Responses["200"]
		created.Description = "Created"
		op.Responses["201"] = created
	}
	op.Parameters = append(refs("dryRun", "fieldManager"), fieldValidation())
	return op
}

func (b *builder) id(verb, scoped string) string {
	return verb + groupTitle(b.gv.Group) + title(b.gv.Version) + scoped
}

// groupTitle is how operation ids name a group: Core, Batch, RbacAuthorization.
func groupTitle(group string) string {
	if group == "" {
		return "Core"
	}
	name := ""
	for part := range strings.SplitSeq(strings.TrimSuffix(group, ".k8s.io"), ".") {
		name += title(part)
	}
	return name
}

// groupTag is how tags name a group: core, batch, rbacAuthorization.
func groupTag(group string) string {
	name := groupTitle(group)
	return strings.ToLower(name[:1]) + name[1:]
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
