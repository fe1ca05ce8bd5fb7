package httpserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/httpserver"
)

// Lists of many objects take several seats.
func TestLargeListsTakeMoreSeats(t *testing.T) {
	s := apiservertest.Open(t, nil)
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	admin := s.As(auth.User{Name: "admin", Groups: []string{"system:masters"}})
	for i := range 301 {
		if _, err := admin.Create(t.Context(), configMaps, "default", "", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cm", i)}}, metav1.CreateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	for query, want := range map[string]int{
		"": 4, "?limit=150": 2, "?limit=5": 1, "?fieldSelector=metadata.name%3Dcm1": 1,
		"?watch=true": 4, "?watch=true&resourceVersion=5": 1, "?watch=true&resourceVersion=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": 4,
	} {
		if got := httpserver.SeatsOf(s.Server, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/configmaps"+query, nil)); got != want {
			t.Errorf("%q takes %d seats, want %d", query, got, want)
		}
	}
}
