package openapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gnosticv2 "github.com/google/gnostic-models/openapiv2"
	gnostic "github.com/google/gnostic-models/openapiv3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
	openapiproto "k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/custom"
)

// root reads the documents as kubectl does.
func root(t *testing.T) openapi3.Root {
	t.Helper()
	s := httptest.NewServer(openapi.New(apiservertest.Kinds(t), "v1.37.0"))
	t.Cleanup(s.Close)
	c, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return openapi3.NewRoot(c.OpenAPIV3())
}

func document(t *testing.T, group string) *spec3.OpenAPI {
	t.Helper()
	doc, err := root(t).GVSpec(schema.GroupVersion{Group: group, Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestEveryVersionHasADocument(t *testing.T) {
	gvs, err := root(t).GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, gv := range gvs {
		got = append(got, gv.String())
	}
	if want := apiservertest.Versions(t); !slices.Equal(got, want) {
		t.Errorf("documents of %q, want %q", got, want)
	}
}

// TestFieldsAreCheckedByTheServer checks what kubectl looks for before it leaves
// validation to the server and merges lists as the document says: every PATCH of a
// kind takes fieldValidation and strategic merge patches. Whichever it finds first counts.
func TestFieldsAreCheckedByTheServer(t *testing.T) {
	all := root(t)
	docs := map[schema.GroupVersion]*spec3.OpenAPI{}
	for _, k := range apiservertest.Kinds(t).Kinds() {
		doc, found := docs[k.GroupVersion()], 0
		if doc == nil {
			var err error
			if doc, err = all.GVSpec(k.GroupVersion()); err != nil {
				t.Fatal(err)
			}
			docs[k.GroupVersion()] = doc
		}
		for path, item := range doc.Paths.Paths {
			if item.Patch == nil || kindOf(t, item.Patch.Extensions) != k.GroupVersionKind {
				continue
			}
			found++
			if !slices.ContainsFunc(item.Patch.Parameters, func(p *spec3.Parameter) bool { return p.Name == "fieldValidation" && p.In == "query" }) {
				t.Errorf("PATCH %s does not say that it takes fieldValidation", path)
			}
			if item.Patch.RequestBody == nil || item.Patch.RequestBody.Content["application/strategic-merge-patch+json"] == nil {
				t.Errorf("PATCH %s does not take strategic merge patches", path)
			}
		}
		if patches := k.Verbs == nil || slices.Contains(k.Verbs, "patch"); patches && found == 0 {
			t.Errorf("%s has no PATCH", k.Kind)
		}
	}
}

func kindOf(t *testing.T, extensions spec.Extensions) schema.GroupVersionKind {
	t.Helper()
	var kind map[string]string
	if err := extensions.GetObject("x-kubernetes-group-version-kind", &kind); err != nil {
		t.Fatal(err)
	}
	return schema.GroupVersionKind{Group: kind["group"], Version: kind["version"], Kind: kind["kind"]}
}

// TestReferencesLeadSomewhere follows every reference of every document.
func TestReferencesLeadSomewhere(t *testing.T) {
	for _, group := range []string{"", "batch", "discovery.k8s.io", "coordination.k8s.io"} {
		doc := document(t, group)
		data, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(data), `"$ref":"`)[1:] {
			ref, _, _ := strings.Cut(part, `"`)
			name := ref[strings.LastIndex(ref, "/")+1:]
			switch {
			case strings.HasPrefix(ref, "#/components/schemas/") && doc.Components.Schemas[name] != nil:
			case strings.HasPrefix(ref, "#/components/parameters/") && doc.Components.Parameters[name] != nil:
			default:
				t.Errorf("%s leads nowhere", ref)
			}
		}
		ids := map[string]string{}
		for path, item := range doc.Paths.Paths {
			for _, op := range []*spec3.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
				if op == nil {
					continue
				}
				if other := ids[op.OperationId]; other != "" {
					t.Errorf("%s and %s have the operation id %s", path, other, op.OperationId)
				}
				ids[op.OperationId] = path
			}
		}
	}
}

// explain finds the schema of a field as kubectl explain does.
func explain(t *testing.T, doc *spec3.OpenAPI, kind, path string) *spec.Schema {
	t.Helper()
	var at *spec.Schema
	for _, s := range doc.Components.Schemas {
		var kinds []map[string]string
		if err := s.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(kinds, func(k map[string]string) bool { return k["kind"] == kind }) {
			at = s
		}
	}
	if at == nil {
		t.Fatalf("no schema of %s", kind)
	}
	follow := func(s *spec.Schema) *spec.Schema {
		for {
			switch {
			case len(s.AllOf) == 1:
				s = &s.AllOf[0]
			case s.Items != nil:
				s = s.Items.Schema
			case s.AdditionalProperties != nil:
				s = s.AdditionalProperties.Schema
			case s.Ref.String() != "":
				name := strings.TrimPrefix(s.Ref.String(), "#/components/schemas/")
				if s = doc.Components.Schemas[name]; s == nil {
					t.Fatalf("no schema %s", name)
				}
			default:
				return s
			}
		}
	}
	var field *spec.Schema
	for name := range strings.SplitSeq(path, ".") {
		p, ok := follow(at).Properties[name]
		if !ok {
			t.Fatalf("%s: no field %s", path, name)
		}
		field = &p
		at = &p
	}
	return field
}

func TestExplain(t *testing.T) {
	doc := document(t, "")
	tests := []struct {
		kind, path string
		check      func(*spec.Schema) bool
	}{
		{"Pod", "spec.containers", func(s *spec.Schema) bool {
			return s.Type.Contains("array") && s.Items.Schema.Ref.String() == "#/components/schemas/io.k8s.api.core.v1.Container" &&
				s.Extensions["x-kubernetes-patch-merge-key"] == "name" && s.Extensions["x-kubernetes-patch-strategy"] == "merge" &&
				strings.HasPrefix(s.Description, "List of containers belonging to the pod.")
		}},
		{"Pod", "spec.containers.livenessProbe.httpGet.port", func(s *spec.Schema) bool {
			return s.AllOf[0].Ref.String() == "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"
		}},
		{"Pod", "metadata.creationTimestamp", func(s *spec.Schema) bool {
			return s.AllOf[0].Ref.String() == "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time"
		}},
		{"Pod", "spec.volumes.configMap.name", func(s *spec.Schema) bool { return s.Type.Contains("string") }}, // of embedded structs twice
		{"Pod", "spec.volumes", func(s *spec.Schema) bool {
			return s.Extensions["x-kubernetes-patch-strategy"] == "merge,retainKeys"
		}},
		{"Pod", "spec.nodeSelector", func(s *spec.Schema) bool { return s.AdditionalProperties.Schema.Type.Contains("string") }},
		{"Pod", "spec.terminationGracePeriodSeconds", func(s *spec.Schema) bool { return s.Format == "int64" }},
		{"Secret", "data", func(s *spec.Schema) bool { return s.AdditionalProperties.Schema.Format == "byte" }},
		{"Service", "spec.ports.nodePort", func(s *spec.Schema) bool { return s.Format == "int32" }},
		{"ConfigMap", "immutable", func(s *spec.Schema) bool { return s.Type.Contains("boolean") }},
		{"Pod", "spec.restartPolicy", func(s *spec.Schema) bool {
			return len(s.Enum) == 3 && s.Enum[0] == "Always" && s.Default == nil
		}},
		{"Pod", "spec.containers.ports.protocol", func(s *spec.Schema) bool { return s.Default == "TCP" && len(s.Enum) == 3 }},
		{"Pod", "spec.containers.name", func(s *spec.Schema) bool { return s.Default == "" }},
		{"Pod", "apiVersion", func(s *spec.Schema) bool { return strings.HasPrefix(s.Description, "APIVersion defines") }},
	}
	for _, tt := range tests {
		t.Run(tt.kind+"."+tt.path, func(t *testing.T) {
			if s := explain(t, doc, tt.kind, tt.path); !tt.check(s) {
				data, err := json.MarshalIndent(s, "", " ")
				t.Errorf("%s, %v", data, err)
			}
		})
	}
	models := doc.Components.Schemas
	if s := models["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]; s.Format != "int-or-string" || len(s.OneOf) != 2 {
		t.Errorf("IntOrString = %v", s)
	}
	if s := models["io.k8s.apimachinery.pkg.apis.meta.v1.Time"]; s.Format != "date-time" || !s.Type.Contains("string") {
		t.Errorf("Time = %v", s)
	}
	if s := models["io.k8s.apimachinery.pkg.api.resource.Quantity"]; len(s.OneOf) != 2 {
		t.Errorf("Quantity = %v", s)
	}
	if got := models["io.k8s.api.core.v1.Container"].Required; !slices.Equal(got, []string{"name"}) {
		t.Errorf("a container needs %q, want its name", got)
	}
	if got := models["io.k8s.api.core.v1.EnvVarSource"].Required; got != nil {
		t.Errorf("the source of a variable needs %q", got)
	}
}

// TestApplyMergesLists makes the patch that kubectl apply makes with the document:
// containers are merged by name.
func TestApplyMergesLists(t *testing.T) {
	doc := document(t, "")
	meta := strategicpatch.PatchMetaFromOpenAPIV3{Schema: doc.Components.Schemas["io.k8s.api.core.v1.Pod"], SchemaList: doc.Components.Schemas}
	pod := func(image string) []byte {
		return []byte(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"` + image + `"},{"name":"b","image":"x","env":[{"name":"E","value":"1"}]}],"tolerations":[{"key":"k"}]}}`)
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(pod("old"), pod("new"), pod("old"), meta, true)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"containers":[{"image":"new","name":"a"}]}}`
	if string(patch) != want {
		t.Errorf("patch = %s, want %s", patch, want)
	}
}

func TestServing(t *testing.T) {
	h := openapi.New(apiservertest.Kinds(t), "v1.37.0")
	get := func(path string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(get("/openapi/v3").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	url := index.Paths["apis/batch/v1"].ServerRelativeURL
	if !strings.HasPrefix(url, "/openapi/v3/apis/batch/v1?hash=") {
		t.Fatalf("index = %v", index)
	}
	if w := get(url); w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "public, immutable" || w.Header().Get("Content-Type") != "application/json" || !json.Valid(w.Body.Bytes()) {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if w := get("/openapi/v3/apis/batch/v1"); w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "" {
		t.Errorf("without a hash: %d %v", w.Code, w.Header())
	}
	if w := get("/openapi/v3/apis/batch/v1?hash=OLD"); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != url {
		t.Errorf("with an old hash: %d to %s", w.Code, w.Header().Get("Location"))
	}
	if w := get(url, "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() > 100_000 {
		t.Errorf("compressed: %v, %d bytes", w.Header(), w.Body.Len())
	}
	if w := get(url, "If-None-Match", get(url).Header().Get("ETag")); w.Code != http.StatusNotModified {
		t.Errorf("unchanged: %d", w.Code)
	}
	if w := get(url, "Accept", "text/html"); w.Code != http.StatusNotAcceptable {
		t.Errorf("HTML: %d", w.Code)
	}
	for _, path := range []string{"/openapi/v3/apis/none/v1", "/openapi/v1", "/openapi"} {
		if w := get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// TestProtobufSaysTheSame reads the protobuf form with the library that its
// clients use, and compares it with the JSON form, document by document.
func TestProtobufSaysTheSame(t *testing.T) {
	h := openapi.New(apiservertest.Kinds(t), "v1.37.0")
	get := func(path, accept string) []byte {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/openapi/v3/"+path, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	for _, path := range []string{"api/v1", "apis/batch/v1", "apis/discovery.k8s.io/v1", "apis/coordination.k8s.io/v1"} {
		for _, name := range []string{"spec.v3.v1.0", "spec.v3@v1.0"} {
			var got, want spec3.OpenAPI
			var doc gnostic.Document
			if err := proto.Unmarshal(get(path, "application/com.github.proto-openapi."+name+"+protobuf"), &doc); err != nil {
				t.Fatal(err)
			}
			text, err := doc.YAMLValue("")
			if err != nil {
				t.Fatal(err)
			}
			if text, err = yaml.YAMLToJSON(text); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			// The protobuf form has no default that is an object.
			if err := json.Unmarshal(bytes.ReplaceAll(get(path, "application/json"), []byte(`,"default":{}`), nil), &want); err != nil {
				t.Fatal(err)
			}
			a, errA := json.Marshal(&want)
			b, errB := json.Marshal(&got)
			if errA != nil || errB != nil || string(a) != string(b) {
				at := 0
				for at < min(len(a), len(b)) && a[at] == b[at] {
					at++
				}
				t.Errorf("%s differs at %d (%v, %v):\njson     …%.200s\nprotobuf …%.200s", path, at, errA, errB, a[at:], b[at:])
			}
		}
	}
}

// TestOpenAPIv2ProtobufSaysTheSame parses both forms of the older document with the library of its
// clients, which refuses what OpenAPI v2 has not.
func TestOpenAPIv2ProtobufSaysTheSame(t *testing.T) {
	kinds := apiservertest.Kinds(t)
	h := openapi.New(kinds, "v1.37.0")
	define(t, kinds, "a.example.com", "b.example.com")
	get := func(accept string) []byte {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/openapi/v2", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	want, err := gnosticv2.ParseDocument(get("application/json"))
	if err != nil {
		t.Fatal(err)
	}
	var got gnosticv2.Document
	if err := proto.Unmarshal(get("application/com.github.proto-openapi.spec.v2.v1.0+protobuf"), &got); err != nil {
		t.Fatal(err)
	}
	values := func(doc *gnosticv2.Document) (v any) {
		t.Helper()
		text, err := doc.YAMLValue("")
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if diff := cmp.Diff(values(want), values(&got)); diff != "" {
		t.Errorf("the forms differ:\n%.4000s", diff)
	}
	item := func(path string) *gnosticv2.PathItem {
		for _, p := range got.Paths.Path {
			if p.Name == path {
				return p.Value
			}
		}
		t.Fatalf("no path %s", path)
		return nil
	}
	pods := item("/api/v1/namespaces/{namespace}/pods")
	if pods.Get.OperationId != "listCoreV1NamespacedPod" || pods.Post.OperationId != "createCoreV1NamespacedPod" || pods.Post.Parameters[0].GetParameter().GetBodyParameter().Schema.XRef != "#/definitions/io.k8s.api.core.v1.Pod" {
		t.Errorf("pods = %v", pods)
	}
	pod := item("/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
	if !slices.Contains(pod.Patch.Consumes, "application/apply-patch+yaml") || len(pod.Parameters) != 3 {
		t.Errorf("jobs/{name} = %v", pod)
	}
}

// define adds kinds without Go types to a catalog, one to each group.
func define(t *testing.T, kinds *catalog.Catalog, groups ...string) {
	t.Helper()
	for _, group := range groups {
		kind, err := custom.Kind(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "boats." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "boats", Singular: "boat", Kind: "Boat", ListKind: "BoatList"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Subresources: &apiextensionsv1.CustomResourceSubresources{
						Scale: &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.crew", StatusReplicasPath: ".status.crew"},
					},
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", Description: "A boat of " + group, Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"crew": {Type: "integer"}}},
						},
					}},
				}},
			},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := kinds.Replace(nil, []*catalog.Kind{kind}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenAPIv2FollowsDefinitions checks that the document that is joined again after each change of the catalog is the one
// that a server makes of the result, with the definitions that every version shares.
func TestOpenAPIv2FollowsDefinitions(t *testing.T) {
	for _, form := range []string{"application/json", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"} {
		kinds := apiservertest.Kinds(t)
		old := openapi.New(kinds, "v1.37.0")
		get := func(h http.Handler, encoding string) *httptest.ResponseRecorder {
			t.Helper()
			r := httptest.NewRequest(http.MethodGet, "/openapi/v2", nil)
			r.Header.Set("Accept", form)
			r.Header.Set("Accept-Encoding", encoding)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			return w
		}
		tags := map[string]bool{}
		for _, group := range []string{"a.example.com", "b.example.com", "c.example.com"} {
			tags[get(old, "").Header().Get("ETag")] = true
			define(t, kinds, group)
		}
		if len(tags) != 3 {
			t.Errorf("%s: three documents have the tags %v", form, tags)
		}
		got := get(old, "")
		fresh := get(openapi.New(kinds, "v1.37.0"), "")
		if got.Header().Get("ETag") != fresh.Header().Get("ETag") || !bytes.Equal(got.Body.Bytes(), fresh.Body.Bytes()) {
			t.Errorf("%s: a server that has seen the changes answers otherwise than one that has not", form)
		}
		zipped, err := gzip.NewReader(get(old, "gzip").Body)
		if err != nil {
			t.Fatal(err)
		}
		zipped.Multistream(false)
		if plain, err := io.ReadAll(zipped); err != nil || !bytes.Equal(plain, got.Body.Bytes()) || got.Header().Get("Content-Length") != strconv.Itoa(len(plain)) {
			t.Errorf("%s: the compressed answer is another (%v)", form, err)
		}
		for _, want := range []string{"A boat of c.example.com", "com.example.a.v1.BoatList", "/apis/b.example.com/v1/namespaces/{namespace}/boats/{name}/scale"} {
			if !bytes.Contains(got.Body.Bytes(), []byte(want)) {
				t.Errorf("%s: the document does not have %q", form, want)
			}
		}
		if form != "application/json" {
			continue
		}
		var doc struct {
			Definitions map[string]struct {
				Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			}
		}
		if err := json.Unmarshal(got.Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		for _, gvk := range []metav1.GroupVersionKind{{Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "c.example.com", Version: "v1"}} {
			gvk.Kind = "DeleteOptions"
			if !slices.Contains(doc.Definitions["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"].Kinds, gvk) {
				t.Errorf("DeleteOptions are not of the kind %v", gvk)
			}
		}
	}
}

// BenchmarkFirstRequest measures what the first one to ask pays, and what is kept.
func BenchmarkFirstRequest(b *testing.B) {
	c := apiservertest.Kinds(b)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		openapi.New(c, "v1.37.0").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v3", nil))
	}
}

func TestOpenAPIv2IsReadByKubectl(t *testing.T) {
	s := httptest.NewServer(openapi.New(apiservertest.Kinds(t), "v1.37.0"))
	t.Cleanup(s.Close)
	c, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := c.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	models, err := openapiproto.NewOpenAPIData(doc)
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string][]string{
		"io.k8s.api.core.v1.Pod":     {"spec", "containers"},
		"io.k8s.api.core.v1.Service": {"spec", "ports"},
		"io.k8s.api.batch.v1.Job":    {"metadata", "labels"},
	} {
		m := models.LookupModel(name)
		for _, field := range path {
			if r, ok := m.(openapiproto.Reference); ok {
				m = r.SubSchema()
			}
			kind, ok := m.(*openapiproto.Kind)
			if !ok || kind.Fields[field] == nil {
				t.Fatalf("%s: no field %s in %v", name, field, m)
			}
			m = kind.Fields[field]
		}
	}
}

// kubectl explain finds a resource by its path.
func TestAliasHasPath(t *testing.T) {
	item := document(t, "").Paths.Paths["/api/v1/namespaces/{namespace}/bindings"]
	if item == nil || item.Post == nil || kindOf(t, item.Post.Extensions).Kind != "Binding" || len(item.Parameters) != 2 {
		t.Errorf("the path of bindings is %+v, want a POST of a Binding", item)
	}
}

// TestIndexIsEqualOnEachServer checks that hashes do not depend on the process, and differ between versions of the program.
func TestIndexIsEqualOnEachServer(t *testing.T) {
	index := func(version string) string {
		kinds := apiservertest.Kinds(t)
		define(t, kinds, "a.example.com")
		w := httptest.NewRecorder()
		openapi.New(kinds, version).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v3", nil))
		return w.Body.String()
	}
	one, two, other := index("v1.37.0"), index("v1.37.0"), index("v1.37.1")
	if one != two {
		t.Errorf("two servers have the indexes\n%s\n%s", one, two)
	}
	for _, path := range []string{"api/v1", "apis/apps/v1", "apis/a.example.com/v1"} {
		hash := regexp.MustCompile(`/openapi/v3/` + path + `\?hash=[0-9A-F]{64}`).FindString(one)
		if hash == "" || strings.Contains(other, hash) {
			t.Errorf("%s: the hash %q is that of another version of the program", path, hash)
		}
	}
}

func TestDeletionOfCollectionsHasOptions(t *testing.T) {
	item := document(t, "").Paths.Paths["/api/v1/namespaces/{namespace}/pods"]
	if item == nil || item.Delete == nil || item.Delete.RequestBody == nil {
		t.Fatalf("it has no body: %+v", item)
	}
	for _, name := range []string{"dryRun", "gracePeriodSeconds", "propagationPolicy", "labelSelector"} {
		if !slices.ContainsFunc(item.Delete.Parameters, func(p *spec3.Parameter) bool { return strings.HasSuffix(p.Ref.String(), "/"+name) }) {
			t.Errorf("it has no parameter %s", name)
		}
	}
}

// TestStatusesAndListsAreMarkedAsUpstream has what differed from kube-apiserver's documents.
func TestStatusesAndListsAreMarkedAsUpstream(t *testing.T) {
	status := document(t, "apiextensions.k8s.io").Components.Schemas["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus"]
	if status == nil || len(status.Required) > 0 || status.Properties["conditions"].Extensions["x-kubernetes-list-type"] != "map" {
		t.Errorf("the status of a definition: %+v", status)
	}
	pods := document(t, "").Components.Schemas["io.k8s.api.core.v1.PodList"]
	if pods == nil || pods.Properties["items"].Extensions["x-kubernetes-list-type"] != nil {
		t.Errorf("a list of pods: %+v", pods)
	}
}
