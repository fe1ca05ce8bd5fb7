package definitions_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// documentURL returns the address of the OpenAPI document of example.com/v1, which has its hash.
func (s *server) documentURL() string {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest("GET", "/openapi/v3", nil))
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &index); err != nil {
		s.t.Fatal(err)
	}
	return index.Paths["apis/example.com/v1"].ServerRelativeURL
}

// Clients keep a document as long as the index names it by the same hash, even when another server answers.
func TestHashNamesTheDocument(t *testing.T) {
	first, second := open(t, nil), open(t, nil)
	first.define(twenty("example.com"))
	second.define(twenty("example.com"))
	before := first.documentURL()
	if before == "" || second.documentURL() != before {
		t.Errorf("two servers name the document of the same definition %q and %q", before, second.documentURL())
	}
	d, err := second.Get(t.Context(), crds, "", "widgets.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	changed := d.(*apiextensionsv1.CustomResourceDefinition).DeepCopy()
	spec := changed.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	text := spec.Properties["text0"]
	text.Description = "Another text."
	spec.Properties["text0"] = text
	if _, err := second.Update(t.Context(), crds, "", changed.Name, changed, metav1.UpdateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	for {
		replaced := second.kinds.Snapshot().Replaced()
		if second.documentURL() != before {
			return
		}
		<-replaced
	}
}
