package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// An inProcess is a server whose requests are made in the test's own process, so that a synctest bubble
// knows when all of them wait.
type inProcess struct {
	*testing.T
	server *apiserver.Server
	stop   func()
}

func serveInProcess(t *testing.T, change ...func(*apiserver.Options)) *inProcess {
	t.Helper()
	st := memory(t, store.Options{})
	opts := options(t, st)
	for _, c := range change {
		c(&opts)
	}
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = st.Run(ctx) })
	<-st.Ready()
	return &inProcess{t, s, g.Stop}
}

// do makes a request as boss, or as who the header says.
func (g *inProcess) do(ctx context.Context, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Header.Set("X-User", "boss")
	r.Header.Set("User-Agent", "test")
	if method == "PATCH" {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	g.server.Handler().ServeHTTP(w, r)
	return w
}

// set makes a ConfigMap in the namespace default, or changes its data.
func (g *inProcess) set(name, phase string) {
	g.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app":"web"}},"data":{"phase":%q}}`, name, phase)
	const path = "/api/v1/namespaces/default/configmaps"
	if w := g.do(g.Context(), "PATCH", path+"/"+name, body); w.Code == 404 {
		w = g.do(g.Context(), "POST", path, body)
		if w.Code != 201 {
			g.Errorf("create %s: %s", name, w.Body)
		}
	}
}

func (g *inProcess) remove(name string) {
	g.Helper()
	if w := g.do(g.Context(), "DELETE", "/api/v1/namespaces/default/configmaps/"+name, ""); w.Code != 200 {
		g.Errorf("delete %s: %s", name, w.Body)
	}
}

const configMapsPath = "/api/v1/namespaces/default/configmaps"

func until(path string, params ...string) string {
	q := url.Values{}
	for i := 0; i < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	return path + "?" + q.Encode()
}

// ended shows an answer: "200 done: web=Running", "504 timeout Timeout: message".
func ended(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	s := fmt.Sprintf("%d %s", w.Code, w.Header().Get(httpserver.UntilHeader))
	var body struct {
		metav1.Status
		Kind  string             `json:"kind"`
		Items []corev1.ConfigMap `json:"items"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	switch body.Kind {
	case "Status":
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", s, body.Reason, body.Message))
	case "ConfigMapList":
		for _, m := range body.Items {
			s += fmt.Sprintf(" %s=%s", m.Name, m.Data["phase"])
		}
		return s
	}
	var m corev1.ConfigMap
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s=%s", s, m.Name, m.Data["phase"])
}

func TestBlockingReads(t *testing.T) {
	const running = `object.data.phase == "Running"`
	tests := []struct {
		name    string
		path    string
		headers []string
		before  func(g *inProcess)
		during  func(g *inProcess) // a second later
		want    string
	}{
		{"holds already", until(configMapsPath+"/web", "until", running), nil, func(g *inProcess) { g.set("web", "Running") }, nil, "200 done web=Running"},
		{
			"comes to hold", until(configMapsPath+"/web", "until", running), nil,
			func(g *inProcess) { g.set("web", "Pending") }, func(g *inProcess) { g.set("web", "Running") }, "200 done web=Running",
		},
		{
			"fails", until(configMapsPath+"/web", "until", "ok:"+running, "until", `failed:object.data.phase == "Failed"`), nil,
			func(g *inProcess) { g.set("web", "Pending") }, func(g *inProcess) { g.set("web", "Failed") }, "200 failed web=Failed",
		},
		{
			"metadata is there, too", until(configMapsPath+"/web", "until", `object.kind == "ConfigMap" && object.metadata.labels.app == "web" && object.metadata.uid != ""`), nil,
			func(g *inProcess) { g.set("web", "x") }, nil, "200 done web=x",
		},
		{"is not there", until(configMapsPath+"/web", "until", running), nil, nil, nil, `404 missing NotFound configmaps "web" not found`},
		{
			"is not there yet", until(configMapsPath+"/web", "until", running, "untilMissing", "wait"), nil,
			nil, func(g *inProcess) { g.set("web", "Running") }, "200 done web=Running",
		},
		{
			"is deleted", until(configMapsPath+"/web", "until", running), nil,
			func(g *inProcess) { g.set("web", "x") }, func(g *inProcess) { g.remove("web") },
			`404 deleted NotFound configmaps "web" was deleted during the wait`,
		},
		{
			"is waited for to be deleted", until(configMapsPath+"/web", "untilMissing", "done"), nil,
			func(g *inProcess) { g.set("web", "x") }, func(g *inProcess) { g.remove("web") }, "200 absent",
		},
		{
			"time is over", until(configMapsPath+"/web", "until", running, "timeoutSeconds", "5"), nil,
			func(g *inProcess) { g.set("web", "x") }, nil,
			`504 timeout Timeout Timeout: configmaps "web": done: does not hold: object.data.phase == "Running"`,
		},
		{
			"a collection", until(configMapsPath, "until", running, "labelSelector", "app=web"), nil,
			func(g *inProcess) { g.set("a", "Running"); g.set("b", "x") }, func(g *inProcess) { g.set("b", "Running") },
			"200 done a=Running b=Running",
		},
		{
			"any of a collection in all namespaces", until("/api/v1/configmaps", "until", "failed:any:object.data.phase=='x'", "until", running), nil,
			func(g *inProcess) { g.set("a", "Running"); g.set("b", "y") }, func(g *inProcess) { g.set("b", "x") },
			"200 failed a=Running b=x",
		},
		{
			"by a field", until(configMapsPath, "until", running, "fieldSelector", "metadata.name=b"), nil,
			func(g *inProcess) { g.set("a", "x"); g.set("b", "x") }, func(g *inProcess) { g.set("b", "Running") }, "200 done b=Running",
		},
		{
			"a collection's time is over", until(configMapsPath, "until", running, "timeoutSeconds", "5"), nil,
			func(g *inProcess) { g.set("a", "Running"); g.set("b", "x") }, nil,
			`504 timeout Timeout Timeout: configmaps: done: holds for 1 of 2 objects: object.data.phase == "Running"; not for b`,
		},
		{"an empty collection", until(configMapsPath, "until", "true", "untilMissing", "fail"), nil, nil, nil, "404 missing NotFound no configmaps match"},

		{"bad expression", until(configMapsPath+"/web", "until", "ok:object.data ="), nil, nil, nil, "400 error BadRequest until: ok: 1:13: not a part of the language: ="},
		{"bad time", until(configMapsPath+"/web", "until", "true", "timeoutSeconds", "1h"), nil, nil, nil, `400 error BadRequest timeoutSeconds: "1h", want a number of seconds from 0 to 3600`},
		{"bad selector", until(configMapsPath, "until", "true", "labelSelector", "a=b=c"), nil, nil, nil, `400 error BadRequest found '=', expected: ',' or 'end of string'`},
		{"a watch", until(configMapsPath, "until", "true", "watch", "1"), nil, nil, nil, "400 error BadRequest until: only whole objects and lists can be waited for: leave out the subresource and watch"},
		{"a subresource", until("/api/v1/namespaces/default/pods/web/status", "until", "true"), nil, nil, nil, "400 error BadRequest until: only whole objects and lists can be waited for: leave out the subresource and watch"},
		{
			"types that do not go together", until(configMapsPath+"/web", "until", "object.data.phase > 1"), nil, func(g *inProcess) { g.set("web", "x") }, nil,
			`400 error BadRequest expression "object.data.phase > 1": 1:19: types that do not go together: a function, an operator or a field is used with a value of another type`,
		},
		{"from the future", until(configMapsPath+"/web", "until", "true", "resourceVersion", "999999"), nil, nil, nil, "504 error Timeout Timeout: Too large resource version: 999999, current: 0"},
		{"nobody", until(configMapsPath+"/web", "until", "true"), []string{"X-User: mallory"}, func(g *inProcess) { g.set("web", "x") }, nil, `403 error Forbidden configmaps "web" is forbidden: User "mallory" cannot get resource "configmaps" in API group "" in the namespace "default"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := serveInProcess(t)
				if tt.before != nil {
					tt.before(g)
				}
				if tt.during != nil {
					time.AfterFunc(time.Second, func() { tt.during(g) })
				}
				start := time.Now()
				w := g.do(t.Context(), "GET", tt.path, "", tt.headers...)
				if got := ended(t, w); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				want := time.Duration(0)
				switch {
				case strings.Contains(tt.path, "resourceVersion=999999"):
					want = 3 * time.Second
				case tt.during != nil:
					want = time.Second
				case w.Header().Get(httpserver.UntilHeader) == "timeout":
					want = 5 * time.Second
				}
				if took := time.Since(start); took != want {
					t.Errorf("answered after %v, want %v", took, want)
				}
				g.stop()
			})
		})
	}
}

func TestBlockingReadTimeoutNamesUnmet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveInProcess(t)
		g.set("web", "x")
		w := g.do(t.Context(), "GET", until(configMapsPath+"/web", "until", "ok:object.data.phase=='y'", "untilMissing", "done", "timeoutSeconds", "0"), "")
		var s metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 504 || s.Details == nil || len(s.Details.Causes) != 2 {
			t.Fatalf("%v: %d %s", err, w.Code, w.Body)
		}
		if c := s.Details.Causes; c[0] != (metav1.StatusCause{Type: "NotYet", Field: "ok", Message: "does not hold: object.data.phase=='y'"}) ||
			c[1] != (metav1.StatusCause{Type: "NotYet", Field: "absent", Message: "the object exists"}) || s.Details.Name != "web" || s.Details.Kind != "configmaps" {
			t.Errorf("details: %+v", s.Details)
		}
		g.stop()
	})
}

func TestBlockingReadForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveInProcess(t)
		g.set("web", "x")
		for accept, want := range map[string]string{
			"application/json;as=Table;g=meta.k8s.io;v=v1":                 `"kind":"Table"`,
			"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1": `"kind":"PartialObjectMetadata"`,
			"application/yaml":                      "kind: ConfigMap",
			"application/vnd.kubernetes.protobuf":   "k8s\x00",
			"application/vnd.kubernetes.protobuf, ": "k8s\x00",
		} {
			w := g.do(t.Context(), "GET", until(configMapsPath+"/web", "until", "true"), "", "Accept: "+accept)
			if w.Code != 200 || !strings.Contains(w.Body.String(), want) || w.Header().Get("Warning") != "" {
				t.Errorf("%s: %d %q", accept, w.Code, w.Body)
			}
		}
		g.stop()
	})
}

// fickle takes the right to read away.
type fickle struct{ denied atomic.Bool }

func (f *fickle) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: a.User.Name == "boss" && !(f.denied.Load() && a.Verb == "get")}
}

func TestBlockingReadAuthorizesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rights fickle
		g := serveInProcess(t, func(o *apiserver.Options) { o.Authorizer = &rights })
		g.set("web", "x")
		time.AfterFunc(time.Second, func() {
			rights.denied.Store(true)
			g.set("web", "y")
		})
		w := g.do(t.Context(), "GET", until(configMapsPath+"/web", "until", "object.data.phase == 'y'"), "")
		if got := ended(t, w); !strings.HasPrefix(got, "403 error Forbidden") {
			t.Errorf("got %s", got)
		}
		g.stop()
	})
}

func TestBlockingReadLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveInProcess(t, func(o *apiserver.Options) { o.MaxWaiting, o.MaxInFlight = 3, 1 })
		g.set("web", "x")
		waiters := run.NewGroup(t.Context(), 0)
		for range 3 {
			waiters.Go(func(ctx context.Context) {
				if got := ended(t, g.do(ctx, "GET", until(configMapsPath+"/web", "until", "object.data.phase == 'y'"), "")); got != "200 done web=y" {
					t.Errorf("got %s", got)
				}
			})
		}
		synctest.Wait()
		metric := func(line string) {
			t.Helper()
			if w := g.do(t.Context(), "GET", "/metrics", "", "X-Group: system:masters"); !strings.Contains(w.Body.String(), line+"\n") {
				t.Errorf("the metrics lack %s", line)
			}
		}
		const labels = `group="",resource="configmaps",scope="resource",subresource="",verb="WAIT",version="v1"`
		metric(`apiserver_longrunning_requests{component="apiserver",` + labels + `} 3`)
		w := g.do(t.Context(), "GET", until(configMapsPath+"/web", "until", "object.data.phase == 'y'"), "")
		if got, want := ended(t, w), "429 error TooManyRequests too many blocking reads of this user: the limit is 3"; got != want || w.Header().Get("Retry-After") != "1" {
			t.Errorf("got %s, Retry-After %q, want %s", got, w.Header().Get("Retry-After"), want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := ended(t, g.do(ctx, "GET", until(configMapsPath+"/web", "until", "object.data.phase == 'y'"), "", "X-Group: system:masters")); !strings.HasPrefix(got, "504") {
			t.Errorf("an administrator's, which is not counted: %s", got)
		}
		g.set("web", "y") // there is a seat for it
		waiters.Wait()
		metric(`apiserver_longrunning_requests{component="apiserver",` + labels + `} 0`)
		metric(`apiserver_request_total{code="200",component="apiserver",dry_run="",` + labels + `} 3`)
		metric(`apiserver_request_total{code="429",component="apiserver",dry_run="",` + labels + `} 1`)
		g.stop()
	})
}

func TestShutdownEndsBlockingReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveInProcess(t)
		g.set("web", "x")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		group := run.NewGroup(ctx, 0)
		group.Go(func(context.Context) { _ = g.server.Run(ctx) })
		w := g.do(t.Context(), "GET", until(configMapsPath+"/web", "until", "false"), "")
		if got := ended(t, w); got != "503 error ServiceUnavailable the server is shutting down" || w.Header().Get("Retry-After") != "1" {
			t.Errorf("got %s, Retry-After %q", got, w.Header().Get("Retry-After"))
		}
		group.Wait()
		g.stop()
	})
}

// TestBlockingReadOverHTTP waits with the standard HTTP client, over a real connection.
func TestBlockingReadOverHTTP(t *testing.T) {
	f := serve(t)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) { _ = f.store.Run(ctx) })
	t.Cleanup(g.Stop)
	<-f.store.Ready()
	f.do("POST", configMapsPath, `{"metadata":{"name":"web"},"data":{"phase":"x"}}`)
	watch := f.watch(configMapsPath + "?watch=1&fieldSelector=metadata.name=web")
	_ = watch.read(1)
	answers := make(chan answer)
	g.Go(func(context.Context) {
		answers <- f.do("GET", until(configMapsPath+"/web", "until", "object.data.phase == 'y'"), nil)
	})
	f.merge(configMapsPath+"/web", `{"data":{"phase":"y"}}`)
	a := <-answers
	if m := into[corev1.ConfigMap](f, a, http.StatusOK); m.Data["phase"] != "y" || a.header.Get(httpserver.UntilHeader) != "done" {
		t.Errorf("got %s, header %q", a.body, a.header.Get(httpserver.UntilHeader))
	}
}
