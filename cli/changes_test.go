package cli_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
)

func TestDeleteFromFilesGoesOnAfterErrors(t *testing.T) {
	c, term := realServer(t)
	dir := t.TempDir()
	all := write(t, dir+"/all.yaml", configMap("a")+"---\napiVersion: sea/v1\nkind: Boat\nmetadata: {name: x}\n---\nkind: broken\n---\n"+configMap("none")+"---\n"+configMap("b")+
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: x-}\n")
	for _, name := range []string{"a", "b"} {
		term.want(0, "configmap/"+name+" created\n", "", "create", "-f", file(t, name+".yaml", configMap(name)))
	}
	term.want(1, "configmap \"a\" deleted from default namespace\nconfigmap \"b\" deleted from default namespace\n",
		"error: "+all+", document 2 (line 5): no matches for kind \"Boat\" in version \"sea/v1\": the server does not serve it; check both\n"+
			"error: "+all+", document 3 (line 9): apiVersion is not set: an object needs apiVersion, kind and metadata\n"+
			"Error from server (NotFound): configmaps \"none\" not found\n"+
			"error: "+all+", document 6 (line 21), line 24 column 1: metadata.name: must be set to delete the object\n", "delete", "-f", all)
	if maps, _, err := client.ConfigMaps.List(t.Context(), c, "default", metav1.ListOptions{}); err != nil || len(maps) != 0 {
		t.Errorf("%d are left, %v", len(maps), err)
	}
	two := write(t, dir+"/two.yaml", configMap("a")+"---\napiVersion: sea/v1\nkind: Boat\nmetadata: {name: x}\n")
	term.want(0, "", "", "delete", "-f", two, "--ignore-not-found")
	if _, err := client.ConfigMaps.Create(t.Context(), c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "k", Namespace: "two"}}); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/kustomization.yaml", "resources: [k.yaml]\nnamespace: two\n")
	write(t, dir+"/k.yaml", configMap("k"))
	term.want(0, "configmap \"k\" deleted from two namespace\n", "", "delete", "-k", dir)
	term.want(0, "namespace \"two\" deleted\n", "Warning: deleting cluster-scoped resources, not scoped to the provided namespace\n", "delete", "ns", "two", "-n", "default", "--wait=false")
}

func TestScaleSaysWhatItExpected(t *testing.T) {
	_, term := realServer(t)
	path := file(t, "web.yaml", strings.Split(webYAML, "---")[0])
	term.want(0, "replicationcontroller/web created\n", "", "create", "-f", path)
	term.want(0, "replicationcontroller/web scaled\n", "", "scale", "-f", path, "--replicas=5")
	term.want(1, "", "error: Expected replicas to be 3, was 5\n", "scale", "rc/web", "--replicas=5", "--current-replicas=3")
	if got := term.run("scale", "rc/web", "--replicas=5", "--resource-version=1"); got.code != 1 || !strings.HasPrefix(got.err, "error: Expected resource version to be 1, was ") {
		t.Errorf("an old version: %+v", got)
	}
	term.want(0, "replicationcontroller/web\n", "", "scale", "rc/web", "--replicas=4", "-o", "name")
	term.want(0, "7", "", "scale", "rc/web", "--replicas=7", "-o", "jsonpath={.spec.replicas}")
	term.want(0, "replicationcontroller/web scaled (server dry run)\n", "", "scale", "rc/web", "--replicas=1", "--dry-run=server")
	term.want(0, "configmap/c created\n", "", "create", "configmap", "c")
	term.want(1, "", "error: configmap/c cannot be scaled: the server has no scale subresource for a ConfigMap\n", "scale", "cm/c", "--replicas=1")
}

func TestAConflictSaysWhereAndWhatToDo(t *testing.T) {
	w, url := serve(t)
	const path = "/api/v1/namespaces/default/configmaps/conf"
	w.extra[path] = func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			fail(rw, apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "other"`, Field: ".data.a"}},
				`Apply failed with 1 conflict: conflict with "other": .data.a`))
			return
		}
		answer(rw, http.StatusOK, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "conf", Namespace: "default"}})
	}
	got := newTerminal(t, url).run("apply", "-f", file(t, "conf.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata:\n  a: x\n"))
	for _, part := range []string{"Error from server (Conflict): ", "conf.yaml, document 1 (line 1), line 5 column 3: Apply failed", `conflict with "other": .data.a`, "--force-conflicts"} {
		if got.code != 1 || !strings.Contains(got.err, part) {
			t.Errorf("exit code %d, want 1, without %q:\n%s", got.code, part, got.err)
		}
	}
}

func TestAServerThatMakesNoTables(t *testing.T) {
	w, url := serve(t)
	term := newTerminal(t, url)
	list := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"default"}},{"metadata":{"name":"b","labels":{"x":"y"}}}]}`
	w.extra["/api/v1/namespaces/default/configmaps"] = func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(rw, list)
			return
		}
		_, _ = io.WriteString(rw, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"8"}}}
{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","resourceVersion":"9"}}}
{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"enough","reason":"InternalError","code":500}}
`)
	}
	w.extra["/api/v1/namespaces/default/configmaps/a"] = func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`)
	}
	term.want(0, "NAME   AGE         LABELS\na      <unknown>   <none>\nb      <unknown>   x=y\n", "", "get", "cm", "--show-labels")
	term.want(0, "NAME   AGE\na      <unknown>\n", "", "get", "cm", "a")
	term.want(1, "NAME   AGE\na      <unknown>\nb      <unknown>\nc      <unknown>\n", "Error from server (InternalError): enough\n", "get", "cm", "--watch")
	list = `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`
	term.want(0, "", "No resources found in default namespace.\n", "get", "cm")
	list = `{"kind":"Nonsense"}`
	term.want(1, "", "error: reading the table of configmaps: the response is not a table, an object or a list\n", "get", "cm")
}
