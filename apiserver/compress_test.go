package apiserver_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLargeAnswersAreCompressed reads small and large answers as clients on this machine and on
// others, with and without gzip.
func TestLargeAnswersAreCompressed(t *testing.T) {
	f := serve(t)
	const path = "/api/v1/namespaces/default/configmaps"
	for _, name := range []string{"a", "b"} {
		f.create(path, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": strings.Repeat(name, 140<<10)}})
	}
	f.create("/api/v1/namespaces/other/configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "small"}})
	get := func(path, client, takes, accept string) (*httptest.ResponseRecorder, []byte) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = client
		r.Header.Set("X-User", "boss")
		r.Header.Set("Accept-Encoding", takes)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		f.http.Config.Handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		if w.Header().Get("Content-Encoding") == "" {
			return w, w.Body.Bytes()
		}
		zr, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(zr)
		if err != nil {
			t.Fatal(err)
		}
		return w, body
	}
	const remote, table = "192.0.2.1:1000", "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, tt := range []struct {
		name, path, client, takes, accept string
		zipped                            bool
	}{
		{"list", path, remote, "gzip", "", true},
		{"list, protobuf", path, remote, "gzip", "application/vnd.kubernetes.protobuf", true},
		{"object", path + "/a", remote, "deflate, GZIP;q=.5", "", true},
		{"small list", "/api/v1/namespaces/other/configmaps", remote, "gzip", "", false},
		{"small object", "/api/v1/namespaces/other/configmaps/small", remote, "gzip", "", false},
		{"small table of large objects", path + "?includeObject=None", remote, "gzip", table, false},
		{"large table", path + "?includeObject=Object", remote, "gzip", table, true},
		{"no gzip", path, remote, "", "", false},
		{"gzip refused", path, remote, "gzip;q=0", "", false},
		{"another coding", path, remote, "br", "", false},
		{"loopback", path, "127.0.0.1:1000", "gzip", "", false},
		{"loopback, IPv6", path, "[::1]:1000", "gzip", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, body := get(tt.path, tt.client, tt.takes, tt.accept)
			if zipped := w.Header().Get("Content-Encoding") == "gzip"; zipped != tt.zipped {
				t.Errorf("compressed: %v", zipped)
			}
			_, want := get(tt.path, tt.client, "", tt.accept)
			if !bytes.Equal(body, want) {
				t.Errorf("%d bytes, want the %d that others get", len(body), len(want))
			}
			if tt.accept != "application/vnd.kubernetes.protobuf" && !json.Valid(body) {
				t.Errorf("invalid JSON: %.100s", body)
			}
			if tt.zipped && w.Header().Get("Content-Length") != "" {
				t.Errorf("the length is %s", w.Header().Get("Content-Length"))
			}
		})
	}
}
