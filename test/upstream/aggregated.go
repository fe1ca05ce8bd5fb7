package upstream

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ServeGroup serves version v1 of an API group with one resource, whales, of which
// there are none, until the end of the test: a server to stand behind an APIService.
// It returns its address.
func ServeGroup(t testing.TB, group string) string {
	t.Helper()
	gv := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
	whales := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.GroupVersion,
		APIResources: []metav1.APIResource{{Name: "whales", SingularName: "whale", Kind: "Whale", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}},
	}
	groups := &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"},
		Groups:   []metav1.APIGroup{{Name: group, Versions: []metav1.GroupVersionForDiscovery{gv}, PreferredVersion: gv}},
	}
	none := &unstructured.UnstructuredList{}
	none.SetAPIVersion(gv.GroupVersion)
	none.SetKind("WhaleList")
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case r.URL.Path == "/apis":
			answer = groups
		case r.URL.Path == "/apis/"+gv.GroupVersion:
			answer = whales
		case strings.HasSuffix(r.URL.Path, "/whales"):
			answer = none
		default:
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the client may have closed the connection
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
