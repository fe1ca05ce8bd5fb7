package discovery_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/discovery"
)

const (
	aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	protobufType   = "application/vnd.kubernetes.protobuf"
)

func newHandler(t *testing.T) http.Handler {
	t.Helper()
	return discovery.New(apiservertest.Kinds(t), version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0+sampan"})
}

func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestDocuments(t *testing.T) {
	h := newHandler(t)
	tests := []struct {
		path, kind string
		has        []string
	}{
		{"/api", "APIVersions", []string{`"versions":["v1"]`}},
		{"/api/", "APIVersions", nil},
		{"/apis", "APIGroupList", []string{`"name":"batch"`, `"preferredVersion":{"groupVersion":"discovery.k8s.io/v1","version":"v1"}`}},
		{"/apis/batch", "APIGroup", []string{`"name":"batch"`, `"versions":[{"groupVersion":"batch/v1","version":"v1"}]`}},
		{"/api/v1", "APIResourceList", []string{
			`"groupVersion":"v1"`,
			`{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]}`,
			`{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["create","delete",`,
			`"shortNames":["po"]`, `"categories":["all"]`,
			`{"name":"pods/log","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"]}`,
			`{"name":"replicationcontrollers/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale",`,
			`"name":"pods/binding","singularName":"","namespaced":true,"kind":"Binding"`,
		}},
		{"/apis/batch/v1", "APIResourceList", []string{`"groupVersion":"batch/v1"`, `"name":"jobs/status"`}},
		{"/version", "", []string{`"gitVersion": "v1.37.0+sampan"`, `"minor": "37"`}},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			w := get(h, tt.path)
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
				t.Fatalf("%d %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
			var doc metav1.TypeMeta
			if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.Kind != tt.kind {
				t.Errorf("kind = %q, %v, want %q", doc.Kind, err, tt.kind)
			}
			for _, want := range tt.has {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s is not in %s", want, w.Body)
				}
			}
		})
	}
}

func TestForms(t *testing.T) {
	h := newHandler(t)
	tests := []struct {
		name, path, accept, want string
	}{
		{"nothing said", "/api/v1", "", "application/json"},
		{"anything", "/api/v1", "*/*", "application/json"},
		{"kubectl at the top", "/apis", aggregatedType + ",application/json", aggregatedType},
		{"kubectl below", "/apis/batch/v1", aggregatedType + ",application/json", "application/json"},
		{"controllers", "/apis", protobufType + ",application/json", protobufType},
		{"weights", "/apis", "application/json;q=0.5,application/yaml;q=0.9", "application/yaml"},
		{"a table is not for discovery", "/apis", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json"},
		{"an old aggregated form", "/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", "application/json"},
		{"the version has one form", "/version", protobufType + ",*/*", "application/json"},
		{"nothing that there is", "/apis", "text/html", ""},
		{"everything but that", "/apis", "application/json;q=0", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := get(h, tt.path, "Accept", tt.accept)
			if tt.want == "" {
				if w.Code != http.StatusNotAcceptable || !strings.Contains(w.Body.String(), "only the following media types are accepted") {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				return
			}
			if got := w.Header().Get("Content-Type"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAllFormsSayTheSame decodes the forms of one document and compares them.
func TestAllFormsSayTheSame(t *testing.T) {
	h := newHandler(t)
	var inJSON, inYAML, inProtobuf metav1.APIResourceList
	if err := json.Unmarshal(get(h, "/api/v1").Body.Bytes(), &inJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(get(h, "/api/v1", "Accept", "application/yaml").Body.Bytes(), &inYAML); err != nil {
		t.Fatal(err)
	}
	data := get(h, "/api/v1", "Accept", protobufType).Body.Bytes()
	var unknown runtime.Unknown
	if len(data) < 4 || string(data[:4]) != "k8s\x00" {
		t.Fatalf("not the protobuf of Kubernetes: %q", data[:min(len(data), 20)])
	}
	if err := unknown.Unmarshal(data[4:]); err != nil {
		t.Fatal(err)
	}
	if err := inProtobuf.Unmarshal(unknown.Raw); err != nil {
		t.Fatal(err)
	}
	inProtobuf.TypeMeta = metav1.TypeMeta{Kind: unknown.Kind, APIVersion: unknown.APIVersion}
	if diff := cmp.Diff(inJSON, inYAML); diff != "" {
		t.Errorf("YAML (-json +yaml):\n%s", diff)
	}
	if diff := cmp.Diff(inJSON, inProtobuf); diff != "" {
		t.Errorf("protobuf (-json +protobuf):\n%s", diff)
	}
}

// TestAggregatedSaysTheSame converts the aggregated documents as clients do and
// compares them with the documents of each group version.
func TestAggregatedSaysTheSame(t *testing.T) {
	h := newHandler(t)
	paths := map[string][]string{}
	for _, v := range apiservertest.Versions(t) {
		root := "/apis"
		if v == "v1" {
			root = "/api"
		}
		paths[root] = append(paths[root], root+"/"+v)
	}
	for path, versions := range paths {
		var doc apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(get(h, path, "Accept", aggregatedType).Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		_, lists, failed := clientdiscovery.SplitGroupsAndResources(doc)
		if len(failed) > 0 || len(lists) != len(versions) {
			t.Fatalf("%s has %d versions (%v failed), want %d", path, len(lists), failed, len(versions))
		}
		for _, v := range versions {
			var plain metav1.APIResourceList
			if err := json.Unmarshal(get(h, v).Body.Bytes(), &plain); err != nil {
				t.Fatal(err)
			}
			names := func(l *metav1.APIResourceList) []string {
				var all []string
				for _, r := range l.APIResources {
					all = append(all, strings.Join([]string{r.Name, r.Kind, strings.Join(r.Verbs, ","), strings.Join(r.ShortNames, ",")}, " "))
				}
				slices.Sort(all)
				return all
			}
			for gv, list := range lists {
				if gv.String() == plain.GroupVersion {
					if diff := cmp.Diff(names(&plain), names(list)); diff != "" {
						t.Errorf("%s (-plain +aggregated):\n%s", v, diff)
					}
				}
			}
		}
	}
}

// TestClientGo discovers the server with client-go.
func TestClientGo(t *testing.T) {
	s := httptest.NewServer(newHandler(t))
	defer s.Close()
	c, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	groupsServed, namespaced := map[string]bool{}, map[string]bool{}
	for _, k := range apiservertest.Kinds(t).Kinds() {
		groupsServed[k.Group] = true
		if k.Namespaced {
			namespaced[k.Group] = true
		}
	}
	for name, c := range map[string]clientdiscovery.DiscoveryInterface{"aggregated": c, "plain": c.WithLegacy()} {
		t.Run(name, func(t *testing.T) {
			v, err := c.ServerVersion()
			if err != nil || v.GitVersion != "v1.37.0+sampan" {
				t.Errorf("version = %v, %v", v, err)
			}
			groups, resources, err := c.ServerGroupsAndResources()
			if want := len(apiservertest.Versions(t)); err != nil || len(groups) != len(groupsServed) || len(resources) != want {
				t.Errorf("%d groups, %d lists of resources, %v, want %d and %d", len(groups), len(resources), err, len(groupsServed), want)
			}
			preferred, err := c.ServerPreferredNamespacedResources()
			if err != nil || len(preferred) != len(namespaced) {
				t.Errorf("%d lists of namespaced resources, %v, want %d", len(preferred), err, len(namespaced))
			}
		})
	}
}

func TestWhatIsNotThere(t *testing.T) {
	h := newHandler(t)
	for _, path := range []string{"/apis/none", "/apis/batch/v9", "/api/v2", "/apis//v1"} {
		if w := get(h, path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/apis", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestAnUnchangedDocumentIsNotSentAgain(t *testing.T) {
	h := newHandler(t)
	first := get(h, "/api/v1")
	again := get(h, "/api/v1", "If-None-Match", first.Header().Get("ETag"))
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("%d with %d bytes", again.Code, again.Body.Len())
	}
	if other := get(h, "/api/v1", "Accept", protobufType, "If-None-Match", first.Header().Get("ETag")); other.Code != http.StatusOK {
		t.Errorf("another form: %d", other.Code)
	}
}
