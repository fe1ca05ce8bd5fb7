package zpages_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/apiserver/zpages"
)

func TestPagesAreTextOrObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := zpages.Component{
			Name: "apiserver", Started: time.Now(), GoVersion: "go1", BinaryVersion: "1.37.0", EmulationVersion: "1.37",
			Paths: func() []string { return []string{"/livez/ping", "/livez", "/api/v1", "/metrics", "/"} },
			Flags: map[string]string{"name": "x", "api-port": "6443"},
		}
		time.Sleep(3723 * time.Second)
		tests := []struct {
			page   http.Handler
			accept string
			code   int
			kind   string // of content
			body   string // a part of it
		}{
			{c.Statusz(), "", 200, "text/plain; charset=utf-8", "\napiserver statusz\nWarning: "},
			{c.Statusz(), "*/*", 200, "text/plain; charset=utf-8", "Up: 1 hr 02 min 03 sec\nGo version: go1\nBinary version: 1.37.0\nEmulation version: 1.37\nPaths: /livez /metrics\n"},
			{
				c.Statusz(), "application/json;v=v1beta1;g=config.k8s.io;as=Statusz", 200, "application/json",
				`"uptimeSeconds":3723,"goVersion":"go1","binaryVersion":"1.37.0","emulationVersion":"1.37","paths":["/livez","/metrics"]`,
			},
			{c.Statusz(), "application/json;v=v1beta1;g=config.k8s.io;as=Flagz", 406, "text/plain; charset=utf-8", "only the following media types"},
			{c.Statusz(), "application/json", 406, "text/plain; charset=utf-8", "only the following media types"},
			{c.Flagz(), "application/json, text/plain", 200, "text/plain; charset=utf-8", "\napi-port=6443\nname=x\n"},
			{c.Flagz(), "application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz", 200, "application/yaml", "apiVersion: config.k8s.io/v1alpha1\nflags:\n  api-port: \"6443\"\n  name: x\nkind: Flagz\nmetadata:\n  name: apiserver\n"},
		}
		for _, tt := range tests {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Accept", tt.accept)
			w := httptest.NewRecorder()
			tt.page.ServeHTTP(w, r)
			if w.Code != tt.code || w.Header().Get("Content-Type") != tt.kind || !strings.Contains(w.Body.String(), tt.body) {
				t.Errorf("%q: %d %s\n%s\nwant %s", tt.accept, w.Code, w.Header().Get("Content-Type"), w.Body, tt.body)
			}
			if deprecated := strings.Contains(tt.accept, "v1alpha1"); deprecated != (w.Header().Get("Warning") != "") {
				t.Errorf("%q: warning %q", tt.accept, w.Header().Get("Warning"))
			}
		}
	})
}
