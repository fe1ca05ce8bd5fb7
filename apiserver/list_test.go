package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/store"
)

// names lists by metadata and returns the names, with the list's own metadata.
func (f *fixture) names(path string, query ...string) (names []string, meta metav1.ListMeta) {
	f.Helper()
	q := url.Values{}
	for _, p := range query {
		key, value, _ := strings.Cut(p, "=")
		q.Set(key, value)
	}
	l := into[metav1.PartialObjectMetadataList](f, f.do("GET", path+"?"+q.Encode(), nil), 200)
	for _, item := range l.Items {
		names = append(names, item.Name)
	}
	return names, l.ListMeta
}

func TestSelectors(t *testing.T) {
	f := serve(t)
	const pods = "/api/v1/namespaces/default/pods"
	for n, labels := range []map[string]string{{"app": "web", "tier": "front"}, {"app": "web"}, {"app": "db"}, nil} {
		p := pod(fmt.Sprint("p", n))
		p.Labels = labels
		if n%2 == 0 {
			p.Spec.NodeName = "node-a"
		}
		f.create(pods, p)
	}
	other := pod("p0")
	other.Namespace, other.Labels = "other", map[string]string{"app": "web"}
	f.create("/api/v1/namespaces/other/pods", other)
	tests := []struct {
		name, path string
		query      []string
		want       []string
	}{
		{"all", pods, nil, []string{"p0", "p1", "p2", "p3"}},
		{"all namespaces", "/api/v1/pods", nil, []string{"p0", "p1", "p2", "p3", "p0"}},
		{"label", pods, []string{"labelSelector=app=web"}, []string{"p0", "p1"}},
		{"label in all namespaces", "/api/v1/pods", []string{"labelSelector=app=web"}, []string{"p0", "p1", "p0"}},
		{"labels", pods, []string{"labelSelector=app=web,tier!=front"}, []string{"p1"}},
		{"label in a set", pods, []string{"labelSelector=app in (web,db)"}, []string{"p0", "p1", "p2"}},
		{"label is there", pods, []string{"labelSelector=tier"}, []string{"p0"}},
		{"label is not there", pods, []string{"labelSelector=!app"}, []string{"p3"}},
		{"indexed field", pods, []string{"fieldSelector=spec.nodeName=node-a"}, []string{"p0", "p2"}},
		{"indexed field that is empty", pods, []string{"fieldSelector=spec.nodeName="}, []string{"p1", "p3"}},
		{"older name of the indexed field", pods, []string{"fieldSelector=spec.host=node-a"}, []string{"p0", "p2"}},
		{"field without a value", pods, []string{"fieldSelector=status.podIPs=10.0.0.1"}, nil},
		{"field that differs", pods, []string{"fieldSelector=spec.nodeName!=node-a"}, []string{"p1", "p3"}},
		{"field and label", pods, []string{"fieldSelector=spec.nodeName=node-a", "labelSelector=app=web"}, []string{"p0"}},
		{"name", pods, []string{"fieldSelector=metadata.name=p2"}, []string{"p2"}},
		{"name in all namespaces", "/api/v1/pods", []string{"fieldSelector=metadata.name=p0"}, []string{"p0", "p0"}},
		{"name that is the start of others", pods, []string{"fieldSelector=metadata.name=p"}, nil},
		{"namespace", "/api/v1/pods", []string{"fieldSelector=metadata.namespace=other"}, []string{"p0"}},
		{"not the namespace", "/api/v1/pods", []string{"fieldSelector=metadata.namespace!=default"}, []string{"p0"}},
		{"another namespace than the path's", pods, []string{"fieldSelector=metadata.namespace=other"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := f.names(tt.path, tt.query...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPagesComeFromOneRevision(t *testing.T) {
	f := serve(t)
	for n := range 7 {
		f.create(configMaps, configMap(fmt.Sprint("cm-", n), fmt.Sprint("odd=", n%2 == 1)))
	}
	first, meta := f.names(configMaps, "limit=3")
	if diff := cmp.Diff([]string{"cm-0", "cm-1", "cm-2"}, first); diff != "" {
		t.Errorf("first page (-want +got):\n%s", diff)
	}
	if meta.RemainingItemCount == nil || *meta.RemainingItemCount != 4 || meta.ResourceVersion != "7" {
		t.Errorf("metadata of the first page: %+v", meta)
	}
	f.remove(configMaps + "/cm-4")
	f.create(configMaps, configMap("cm-30"))
	second, meta := f.names(configMaps, "limit=3", "continue="+meta.Continue)
	if diff := cmp.Diff([]string{"cm-3", "cm-4", "cm-5"}, second); diff != "" {
		t.Errorf("second page (-want +got):\n%s", diff)
	}
	last, meta := f.names(configMaps, "continue="+meta.Continue)
	if diff := cmp.Diff([]string{"cm-6"}, last); diff != "" {
		t.Errorf("last page (-want +got):\n%s", diff)
	}
	if meta.Continue != "" || meta.RemainingItemCount != nil || meta.ResourceVersion != "7" {
		t.Errorf("metadata of the last page: %+v", meta)
	}
}

func TestPagesOfASelection(t *testing.T) {
	f := serve(t)
	for n := range 500 {
		f.create(configMaps, configMap(fmt.Sprintf("cm-%03d", n), fmt.Sprint("n=", n%50)))
	}
	for _, selector := range []string{"labelSelector=n=7", "labelSelector=n in (7,x)"} {
		var got []string
		token := ""
		for pages := 1; ; pages++ {
			names, meta := f.names(configMaps, selector, "limit=3", "continue="+token)
			if got = append(got, names...); len(names) > 3 {
				t.Fatalf("a page of %d", len(names))
			}
			if meta.RemainingItemCount != nil {
				t.Errorf("%s: %d items remain, which nobody can know", selector, *meta.RemainingItemCount)
			}
			if token = meta.Continue; token == "" {
				break
			}
			if pages > 5 {
				t.Fatalf("%s: more than 5 pages for 10 objects", selector)
			}
		}
		want := []string{"cm-007", "cm-057", "cm-107", "cm-157", "cm-207", "cm-257", "cm-307", "cm-357", "cm-407", "cm-457"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", selector, diff)
		}
	}
}

func TestVersionsOfLists(t *testing.T) {
	f := serve(t)
	for n := range 3 {
		f.create(configMaps, configMap(fmt.Sprint("cm-", n)))
	}
	tests := []struct {
		name    string
		query   []string
		count   int
		version string
	}{
		{"unset", nil, 3, "3"},
		{"0", []string{"resourceVersion=0"}, 3, "3"},
		{"a number is a minimum", []string{"resourceVersion=1"}, 3, "3"},
		{"not older than", []string{"resourceVersion=1", "resourceVersionMatch=NotOlderThan"}, 3, "3"},
		{"not older than, a page", []string{"resourceVersion=1", "resourceVersionMatch=NotOlderThan", "limit=2"}, 2, "3"},
		{"exact", []string{"resourceVersion=1", "resourceVersionMatch=Exact"}, 1, "1"},
		{"exact, a page", []string{"resourceVersion=2", "resourceVersionMatch=Exact", "limit=1"}, 1, "2"},
		{"a page of a number is exact", []string{"resourceVersion=1", "limit=5"}, 1, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			names, meta := f.names(configMaps, tt.query...)
			if len(names) != tt.count || meta.ResourceVersion != tt.version {
				t.Errorf("%d items of version %s, want %d of %s", len(names), meta.ResourceVersion, tt.count, tt.version)
			}
		})
	}
}

func TestExpiredContinueOffersInconsistentToken(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) { o.Store = memory(t, store.Options{History: 4}) })
	for n := range 3 {
		f.create(configMaps, configMap(fmt.Sprint("cm-", n)))
	}
	_, meta := f.names(configMaps, "limit=1")
	for n := range 10 {
		f.create(configMaps, configMap(fmt.Sprint("new-", n)))
	}
	s := f.refused(f.do("GET", configMaps+"?limit=1&continue="+meta.Continue, nil), 410, metav1.StatusReasonExpired, "too old to display a consistent list")
	names, meta := f.names(configMaps, "limit=1", "continue="+s.Continue)
	if diff := cmp.Diff([]string{"cm-1"}, names); diff != "" || meta.ResourceVersion != "13" {
		t.Errorf("version %s, (-want +got):\n%s", meta.ResourceVersion, diff)
	}
}

func TestForms(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	f.create(configMaps, configMap("b"))
	const table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

	list := into[metav1.Table](f, f.do("GET", configMaps+"?includeObject=None&limit=1", nil, table), 200)
	if list.Kind != "Table" || list.ResourceVersion != "2" || list.Continue == "" || len(list.Rows) != 1 || list.Rows[0].Cells[0] != "a" || list.Rows[0].Object.Raw != nil && string(list.Rows[0].Object.Raw) != "null" {
		t.Errorf("table of a list: %+v", list)
	}
	if len(list.ColumnDefinitions) != len(list.Rows[0].Cells) {
		t.Errorf("%d columns, %d cells", len(list.ColumnDefinitions), len(list.Rows[0].Cells))
	}
	one := into[metav1.Table](f, f.do("GET", configMaps+"/b", nil, table), 200)
	if len(one.Rows) != 1 || one.ResourceVersion != "2" || !strings.Contains(string(one.Rows[0].Object.Raw), `"kind":"PartialObjectMetadata"`) {
		t.Errorf("table of an object: %+v", one)
	}
	f.refused(f.do("GET", configMaps+"?includeObject=Some", nil, table), 400, metav1.StatusReasonBadRequest, "must be 'Metadata', 'Object', 'None', or empty")
	f.refused(f.do("GET", configMaps+"/x", nil, table), 404, metav1.StatusReasonNotFound, "not found")
	empty := into[metav1.Table](f, f.do("GET", "/api/v1/nodes", nil, table), 200)
	if empty.Rows == nil || len(empty.ColumnDefinitions) < 2 {
		t.Errorf("table of nothing: %+v", empty)
	}

	meta := f.do("GET", configMaps, nil, "Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if got := into[metav1.PartialObjectMetadataList](f, meta, 200); got.Kind != "PartialObjectMetadataList" || len(got.Items) != 2 || strings.Contains(string(meta.body), `"data"`) {
		t.Errorf("metadata of a list: %s", meta.body)
	}
	single := f.do("GET", configMaps+"/a", nil, "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	if got := into[metav1.PartialObjectMetadata](f, single, 200); got.Kind != "PartialObjectMetadata" || got.Name != "a" {
		t.Errorf("metadata of an object: %s", single.body)
	}

	pretty := f.do("GET", configMaps+"/a?pretty=true", nil)
	if !strings.HasPrefix(string(pretty.body), "{\n  \"kind\"") {
		t.Errorf("pretty: %s", pretty.body)
	}
	yaml := f.do("GET", configMaps, nil, "Accept: application/yaml")
	if got := yaml.header.Get("Content-Type"); got != "application/yaml" || !strings.HasPrefix(string(yaml.body), "apiVersion: v1\nitems:\n") {
		t.Errorf("%s: %s", got, yaml.body)
	}
}

func TestProtobuf(t *testing.T) {
	f := serve(t)
	const proto = "application/vnd.kubernetes.protobuf"
	kind := corev1.SchemeGroupVersion.WithKind
	cm := configMap("a")
	cm.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	body, err := codec.Encode(codec.Media{Encoding: codec.Protobuf}, cm)
	if err != nil {
		t.Fatal(err)
	}
	post := f.do("POST", configMaps, body, "Content-Type: "+proto, "Accept: "+proto)
	made := &corev1.ConfigMap{}
	if _, err := codec.Decode(t.Context(), codec.Protobuf, post.body, made, kind("ConfigMap"), codec.Strict); err != nil || post.code != 201 {
		t.Fatalf("%d %q: %v", post.code, post.body, err)
	}
	if post.header.Get("Content-Type") != proto || made.ResourceVersion != "1" || made.Data["k"] != "a" {
		t.Errorf("created %+v", made)
	}
	list := &corev1.ConfigMapList{}
	if _, err := codec.Decode(t.Context(), codec.Protobuf, f.do("GET", configMaps, nil, "Accept: "+proto).body, list, kind("ConfigMapList"), codec.Strict); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.ResourceVersion != "1" {
		t.Errorf("listed %+v", list)
	}
	asJSON := into[corev1.ConfigMap](f, f.do("GET", configMaps+"/a", nil), 200)
	asJSON.TypeMeta, made.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
	if diff := cmp.Diff(*made, asJSON); diff != "" {
		t.Errorf("protobuf and JSON differ (-protobuf +JSON):\n%s", diff)
	}
	failure := f.do("GET", configMaps+"/x", nil, "Accept: "+proto)
	status := &metav1.Status{}
	if _, err := codec.Decode(t.Context(), codec.Protobuf, failure.body, status, corev1.SchemeGroupVersion.WithKind("Status"), codec.Strict); err != nil || status.Code != 404 || status.Reason != metav1.StatusReasonNotFound {
		t.Errorf("failure: %v %+v", err, status)
	}
}

func TestLocalSeesWhatHTTPSees(t *testing.T) {
	f := serve(t)
	in := pod("a")
	in.Labels = map[string]string{"app": "web"}
	made, err := f.local.Create(t.Context(), pdGVR, "default", "", in, metav1.CreateOptions{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if in.UID != "" || in.Status.Phase != "" {
		t.Errorf("Create changed what it was given: %+v", in)
	}
	got, err := f.local.Get(t.Context(), pdGVR, "default", "a", "")
	if err != nil || got != made {
		t.Errorf("Get = %p, %v, want the shared object %p", got, err, made)
	}
	objs, meta, err := f.local.List(t.Context(), pdGVR, "", metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(objs) != 1 || objs[0] != made || meta.ResourceVersion != "1" {
		t.Errorf("List = %v, %+v, %v", objs, meta, err)
	}
	for ev, err := range f.local.Watch(t.Context(), pdGVR, "default", metav1.ListOptions{ResourceVersion: "0"}) {
		if err != nil || ev.Type != "ADDED" || ev.Object != made {
			t.Errorf("Watch: %+v, %v", ev, err)
		}
		break
	}
	overHTTP := into[corev1.Pod](f, f.do("GET", "/api/v1/namespaces/default/pods/a", nil), 200)
	a, _ := json.Marshal(made)
	b, _ := json.Marshal(overHTTP)
	if string(a) != string(b) {
		t.Errorf("in process: %s\nover HTTP: %s", a, b)
	}

	for name, err := range map[string]error{
		"another kind":        second(f.local.Create(t.Context(), pdGVR, "default", "", configMap("x"), metav1.CreateOptions{}, "")),
		"no namespace":        second(f.local.Create(t.Context(), pdGVR, "", "", pod("x"), metav1.CreateOptions{}, "")),
		"no name":             second(f.local.Get(t.Context(), pdGVR, "default", "", "")),
		"unknown resource":    second(f.local.Get(t.Context(), corev1.SchemeGroupVersion.WithResource("x"), "default", "a", "")),
		"unknown subresource": second(f.local.Get(t.Context(), pdGVR, "default", "a", "x")),
		"a verb it has not":   second(f.local.Get(t.Context(), pdGVR, "default", "a", "binding")),
		"a stream":            second(f.local.Get(t.Context(), pdGVR, "default", "a", "log")),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// Every verb refuses a user without rights.
	mate := f.server.As(f.mate())
	for name, err := range map[string]error{
		"get":    second(mate.Get(t.Context(), pdGVR, "default", "a", "")),
		"create": second(mate.Create(t.Context(), pdGVR, "default", "", pod("x"), metav1.CreateOptions{}, "")),
		"update": second(mate.Update(t.Context(), pdGVR, "default", "a", made, metav1.UpdateOptions{}, "")),
		"patch":  second(mate.Patch(t.Context(), pdGVR, "default", "a", "application/merge-patch+json", []byte(`{}`), metav1.PatchOptions{}, "")),
		"delete": mate.Delete(t.Context(), pdGVR, "default", "a", metav1.DeleteOptions{}),
		"list":   third(mate.List(t.Context(), pdGVR, "default", metav1.ListOptions{})),
	} {
		if err == nil || !strings.Contains(err.Error(), `User "mate" cannot `+name) {
			t.Errorf("%s by somebody without rights: %v", name, err)
		}
	}
	for _, err := range mate.Watch(t.Context(), pdGVR, "default", metav1.ListOptions{}) {
		if err == nil || !strings.Contains(err.Error(), `User "mate" cannot watch`) {
			t.Errorf("watch by somebody without rights: %v", err)
		}
	}
}
