package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
)

func TestRefusedWrites(t *testing.T) {
	for name, tt := range map[string]struct {
		answers map[string]int // the code by check; a check without one is not served
		want    string
	}{
		"fine":          {map[string]int{"store-quota": 200, "etcd": 200}, ""},
		"quota":         {map[string]int{"store-quota": 500, "etcd": 200}, "store-quota: why"},
		"disk":          {map[string]int{"store-quota": 200, "etcd": 500}, "etcd: why"},
		"other servers": {map[string]int{"etcd": 200}, ""},
		"not permitted": {map[string]int{"store-quota": 403, "etcd": 403}, ""},
		"broken":        {map[string]int{"store-quota": 503, "etcd": 503}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				check := r.URL.Path[len("/readyz/"):]
				code := tt.answers[check]
				if code == 0 {
					code = http.StatusNotFound
				}
				w.WriteHeader(code)
				if code == http.StatusInternalServerError {
					_, _ = w.Write([]byte("internal server error: " + check + ": why\n"))
				}
			}))
			defer s.Close()
			c, err := client.NewREST(&rest.Config{Host: s.URL}, client.RESTOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.RefusedWrites(t.Context()); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
