package apiserver_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/httpserver"
)

func TestDebugPagesAreForAdministrators(t *testing.T) {
	for _, profiling := range []bool{true, false} {
		s := apiservertest.Open(t, func(o *apiserver.Options) {
			o.Auth, o.Profiling, o.Version, o.Flags = byHeader{}, profiling, "v1.37.0+x", map[string]string{"name": "x"}
		})
		do(s, "GET", "/readyz", "")
		do(s, "GET", "/livez/ping", "")
		for path, want := range map[string]string{
			"/statusz":                         "Binary version: 1.37.0\nEmulation version: 1.37\nPaths: /configz /",
			"/flagz":                           "\nname=x\n",
			"/configz":                         "{}",
			"/metrics/slis":                    "kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1\nkubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1\n",
			"/debug/pprof/":                    "goroutine",
			"/debug/pprof/goroutine?debug=1":   "goroutine profile: total",
			"/debug/pprof/cmdline":             "apiserver",
			"/debug/pprof/nothing-of-the-kind": "Unknown profile",
		} {
			w := do(s, "GET", path, "")
			if strings.HasPrefix(path, "/debug") && !profiling {
				if w.Code != 404 {
					t.Errorf("%s is served though profiling is off: %d", path, w.Code)
				}
				continue
			}
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %d %s\nwant %s", path, w.Code, w.Body, want)
			}
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("X-User", "jane")
			w = httptest.NewRecorder()
			if s.Handler().ServeHTTP(w, r); w.Code != 403 {
				t.Errorf("a user may see %s: %d", path, w.Code)
			}
		}
	}
}

func TestRequestLogHasOneLinePerRequest(t *testing.T) {
	for setting, want := range map[httpserver.RequestLog]string{
		httpserver.LogNone:   "",
		httpserver.LogErrors: "",
		httpserver.LogWrites: `level=INFO msg=request user=admin verb=post version=v1 resource=configmaps namespace=default code=201
`,
		httpserver.LogAll: `level=INFO msg=request user=admin verb=post version=v1 resource=configmaps namespace=default code=201
level=INFO msg=request user=admin verb=get version=v1 resource=configmaps namespace=default name=a code=200
level=INFO msg=request user=admin verb=get path=/version code=200
level=INFO msg=request user=system:anonymous verb=list group=g version=v1 resource=xxxx… code=403
`,
	} {
		var out bytes.Buffer
		s := apiservertest.Open(t, func(o *apiserver.Options) {
			o.Auth, o.RequestLog = byHeader{}, setting
			o.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				switch a.Key {
				case "time", "latency", "bytes", "client", "queued", "auditID":
					return slog.Attr{}
				case "resource":
					return slog.String("resource", strings.ReplaceAll(a.Value.String(), strings.Repeat("x", 252), ""))
				}
				return a
			}}))
		})
		do(s, "POST", configMaps, `{"metadata":{"name":"a"}}`)
		do(s, "GET", configMaps+"/a", "")
		do(s, "GET", "/version", "")
		s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/apis/g/v1/"+strings.Repeat("x", 1000), nil))
		if got := out.String(); got != want {
			t.Errorf("%q logs\n%swant\n%s", setting, got, want)
		}
	}
}
