package schema_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/schema"
	"github.com/sampan-io/sampan/client"
)

// A server answers with the documents of our own API server, and with discovery.
type server struct {
	openapi http.Handler
	asked   []string
	down    bool
}

func newServer(t *testing.T) *server {
	return &server{openapi: openapi.New(apiservertest.Kinds(t), "v1.37.0")}
}

func (s *server) Do(_ context.Context, r client.RawRequest) (*http.Response, error) {
	s.asked = append(s.asked, r.Path)
	w := httptest.NewRecorder()
	w.Code = http.StatusOK
	switch {
	case s.down:
		return nil, apierrors.NewForbidden(k8sschema.GroupResource{}, r.Path, nil)
	case r.Path == "/api/v1":
		_, _ = w.WriteString(`{"resources":[{"name":"pods","kind":"Pod","namespaced":true},{"name":"services","kind":"Service","namespaced":true},
			{"name":"configmaps","kind":"ConfigMap","namespaced":true},{"name":"replicationcontrollers","kind":"ReplicationController","namespaced":true}]}`)
	case r.Path == "/apis/batch/v1":
		_, _ = w.WriteString(`{"resources":[{"name":"jobs","kind":"Job","namespaced":true}]}`)
	default:
		s.openapi.ServeHTTP(w, httptest.NewRequest(http.MethodGet, r.Path+"?"+r.Query.Encode(), nil))
	}
	return w.Result(), nil
}

// faults returns a line per fault in the documents of a text.
func faults(t *testing.T, s *server, schemas *schema.Schemas, text string) []string {
	t.Helper()
	lines := []string{}
	req := resource.Request{Files: []string{"-"}, In: strings.NewReader(text), Namespace: "default"}
	for info, err := range resource.Stream(t.Context(), resource.NewMapper(s), req) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range schemas.Check(t.Context(), info.Mapping.GVK(), info.Object.Object) {
			line, column, _ := info.Position(f.Path)
			lines = append(lines, fmt.Sprintf("%d:%d: %s", line, column, f.Message))
		}
	}
	return lines
}

func TestFaultsHaveTheirPlace(t *testing.T) {
	s := newServer(t)
	schemas := schema.New(schema.Options{Server: s})
	const in = `apiVersion: v1
kind: Pod
metadata:
  name: a
  labels: {app: x, num: 1}
  anotations: {a: b}
spec:
  containers:
  - name: main
    imagge: x
    ports: [{containerPort: "80"}]
    env: [{name: A, value: true}]
    resources: {requests: {cpu: 1, memory: 1.5, disk: [1]}}
    livenessProbe: {httpGet: {port: http}, periodSeconds: 1.5}
    readinessProbe: {httpGet: {port: {a: b}}}
    command: echo
  volumes: {}
  hostNetwork: yes
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, creationTimestamp: null}
data: {a: "1", b: 2}
binaryData: {x.y: 3}
dat: {}
`
	want := []string{
		`6:3: unknown field "metadata.anotations" (did you mean "annotations"?)`,
		`5:20: field "metadata.labels.num" must be a string, got the number 1: put it in quotes`,
		`16:5: field "spec.containers[0].command" must be a list, got the text "echo"`,
		`12:21: field "spec.containers[0].env[0].value" must be a string, got the boolean true: put it in quotes`,
		`10:5: unknown field "spec.containers[0].imagge" (did you mean "image"?)`,
		`14:44: field "spec.containers[0].livenessProbe.periodSeconds" must be a whole number, got the number 1.5`,
		`11:14: field "spec.containers[0].ports[0].containerPort" must be a whole number, got the text "80"`,
		`15:32: field "spec.containers[0].readinessProbe.httpGet.port" must be a whole number or a string, got a map`,
		`13:49: field "spec.containers[0].resources.requests.disk" must be a string or a number, got a list`,
		`17:3: field "spec.volumes" must be a list, got a map`,
		`24:14: field "binaryData[x.y]" must be a string, got the number 3: put it in quotes`,
		`25:1: unknown field "dat" (did you mean "data"?)`,
		`23:16: field "data.b" must be a string, got the number 2: put it in quotes`,
	}
	if got := faults(t, s, schemas, in); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := 2; strings.Count(strings.Join(s.asked, " "), "/openapi/v3") != want {
		t.Errorf("it asked for %q, want the index and one document once", s.asked)
	}
}

func TestExamplesAreRight(t *testing.T) {
	s := newServer(t)
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := faults(t, s, schema.New(schema.Options{Server: s}), string(text)); len(got) > 0 {
			t.Errorf("%s: %q", file, got)
		}
	}
}

func TestADocumentIsKeptAsLongAsItIsTheSame(t *testing.T) {
	const wrong = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndat: {}\n"
	dir := filepath.Join(t.TempDir(), "cache")
	s := newServer(t)
	for round, want := range []int{1, 0} {
		s.asked = nil
		if got := faults(t, s, schema.New(schema.Options{Server: s, Cache: dir}), wrong); len(got) != 1 {
			t.Fatalf("round %d: %q", round, got)
		}
		n := 0
		for _, path := range s.asked {
			if path == "/openapi/v3/api/v1" {
				n++
			}
		}
		if n != want {
			t.Errorf("round %d: the document was asked for %d times, want %d", round, n, want)
		}
	}
	kept, _ := filepath.Glob(dir + "/*")
	if len(kept) != 1 {
		t.Fatalf("%q are kept, want one document", kept)
	}
	// A document that is damaged is asked for again, one that was replaced goes.
	old := filepath.Join(dir, "api-v1@old.json")
	for _, path := range []string{kept[0], old} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := faults(t, s, schema.New(schema.Options{Server: s, Cache: dir}), wrong); len(got) != 1 {
		t.Errorf("after damage: %q", got)
	}
	if now, _ := filepath.Glob(dir + "/*"); !slices.Equal(now, kept) {
		t.Errorf("%q are kept, want %q", now, kept)
	}
}

func TestWithoutSchemasNothingIsFound(t *testing.T) {
	const wrong = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndat: {}\n"
	s := newServer(t)
	s.openapi = http.NotFoundHandler()
	if got := faults(t, s, schema.New(schema.Options{Server: s}), wrong); len(got) != 0 {
		t.Errorf("a server without OpenAPI: %q", got)
	}
	s = newServer(t)
	schemas := schema.New(schema.Options{Server: s})
	boat := k8sschema.GroupVersionKind{Group: "sea", Version: "v1", Kind: "Boat"}
	if got := schemas.Check(t.Context(), boat, map[string]any{"a": "b"}); len(got) != 0 {
		t.Errorf("a kind that is not served: %v", got)
	}
	s.down = true
	if got := schemas.Check(t.Context(), k8sschema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, map[string]any{"a": "b"}); len(got) != 0 {
		t.Errorf("a user who may not read schemas: %v", got)
	}
}

// TestCustomResources checks what only the schemas of CustomResourceDefinitions have.
func TestCustomResources(t *testing.T) {
	const doc = `{"components":{"schemas":{"sea.v1.Boat":{"type":"object","x-kubernetes-group-version-kind":[{"group":"sea","version":"v1","kind":"Boat"}],
		"properties":{"metadata":{"type":"object"},"spec":{"type":"object","properties":{
			"size":{"type":"string","enum":["small","large"]},
			"port":{"x-kubernetes-int-or-string":true},
			"either":{"anyOf":[{"type":"integer"},{"type":"boolean"}]},
			"crew":{"type":"object","additionalProperties":{"type":"integer"}},
			"free":{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-preserve-unknown-fields":true},
			"cargo":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"spec":{"type":"object"}}},
			"closed":{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}}}}}}}}`
	s := newServer(t)
	s.openapi = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v3" {
			_, _ = w.Write([]byte(`{"paths":{"apis/sea/v1":{"serverRelativeURL":"/openapi/v3/apis/sea/v1"}}}`))
			return
		}
		_, _ = w.Write([]byte(doc))
	})
	schemas := schema.New(schema.Options{Server: s})
	spec := map[string]any{
		"size": "big", "port": 1.5, "either": "x", "crew": map[string]any{"bob": "x", "ann": int64(1)},
		"free": map[string]any{"a": int64(1), "b": "x"}, "cargo": map[string]any{"kind": "Box", "what": "x"}, "closed": map[string]any{"b": "x"},
	}
	var got []string
	for _, f := range schemas.Check(t.Context(), k8sschema.GroupVersionKind{Group: "sea", Version: "v1", Kind: "Boat"},
		map[string]any{"apiVersion": "sea/v1", "kind": "Boat", "spec": spec, "status": nil}) {
		got = append(got, f.Message)
	}
	want := []string{
		`unknown field "spec.cargo.what"`, `unknown field "spec.closed.b"`,
		`field "spec.crew.bob" must be a whole number, got the text "x"`,
		`field "spec.either" must be a whole number or true or false, got the text "x"`,
		`field "spec.free.a" must be a string, got the number 1: put it in quotes`,
		`field "spec.port" must be a whole number or a string, got the number 1.5`,
		`field "spec.size" must be one of small, large, got "big"`,
		`unknown field "status"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
