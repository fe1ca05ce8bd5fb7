package apiserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/operation"
)

// scrape returns the lines of /metrics.
func scrape(t *testing.T, s *apiserver.Server) map[string]bool {
	t.Helper()
	w := do(s, "GET", "/metrics", "")
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(w.Body.String()) {
		lines[strings.TrimSuffix(line, "\n")] = true
	}
	return lines
}

// do makes a request as an administrator.
func do(s *apiserver.Server, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("X-User", "admin")
	r.Header.Set("X-Group", "system:masters")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestRequestMetricsHaveUpstreamsNames(t *testing.T) {
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		o.Auth, o.Admission = byHeader{}, []admission.Plugin{admission.NewNamespaceLifecycle(operation.NewReader(o.Catalog, o.Store))}
	})
	do(s, "POST", "/api/v1/namespaces", `{"metadata":{"name":"default"}}`)
	do(s, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	do(s, "POST", "/api/v1/namespaces/nowhere/configmaps", `{"metadata":{"name":"a"}}`)
	do(s, "POST", configMaps+"?dryRun=All", `{"metadata":{"name":"b"}}`)
	do(s, "GET", configMaps+"/a", "")
	do(s, "GET", configMaps, "")
	do(s, "GET", "/api/v1/nodes", "")
	do(s, "GET", "/api/v1/configmaps?watch=1&timeoutSeconds=1", "")
	do(s, "GET", "/version", "")
	s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", configMaps, nil)) // anonymous
	lines := scrape(t, s)
	request := func(verb, dryRun, resource, scope, code string) string {
		return fmt.Sprintf(`apiserver_request_total{code=%q,component="apiserver",dry_run=%q,group="",resource=%q,scope=%q,subresource="",verb=%q,version="v1"} 1`, code, dryRun, resource, scope, verb)
	}
	for _, want := range []string{
		request("POST", "", "configmaps", "resource", "201"),
		request("POST", "All", "configmaps", "resource", "201"),
		request("GET", "", "configmaps", "resource", "200"),
		request("LIST", "", "configmaps", "namespace", "200"),
		request("LIST", "", "nodes", "cluster", "200"),
		request("WATCH", "", "configmaps", "cluster", "200"),
		request("LIST", "", "configmaps", "namespace", "403"),
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/version",verb="GET",version=""} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="nodes",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_sli_duration_seconds_count{component="apiserver",group="",resource="nodes",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_response_sizes_bucket{component="apiserver",group="",resource="nodes",scope="cluster",subresource="",verb="LIST",version="v1",le="1000"} 1`,
		`apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="cluster",subresource="",verb="WATCH",version="v1"} 0`,
		`apiserver_watch_events_total{group="",resource="configmaps",version="v1"} 1`,
		`apiserver_current_inflight_requests{request_kind="mutating"} 0`,
		`apiserver_current_inflight_requests{request_kind="readOnly"} 1`, // this one
		`apiserver_storage_objects{resource="configmaps"} 1`,
		`apiserver_storage_objects{resource="deployments.apps"} 0`,
		`apiserver_resource_objects{group="apps",resource="deployments"} 0`,
		`authentication_attempts{result="failure"} 1`,
		`authentication_attempts{result="success"} 10`,
		`authenticated_user_requests{username="admin"} 10`,
		`apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="false",type="admit"} 3`,
		`apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="true",type="admit"} 1`,
		`apiserver_admission_controller_admission_duration_seconds_count{name="NamespaceLifecycle",operation="CREATE",rejected="true",type="admit"} 1`,
		`authorization_attempts_total{result="denied"} 1`,
	} {
		if !lines[want] {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// Clients cannot make series: paths, verbs, users and resources that don't exist have none of their own.
func TestHostileRequestsMakeFewSeries(t *testing.T) {
	s := apiservertest.Open(t, func(o *apiserver.Options) { o.Auth = byHeader{} })
	hostile := func(i int) {
		for _, path := range []string{"/nowhere%d", "/version/%d", "/api/v1/things%d", "/apis/g%d/v1/things", "/api/v1/namespaces/default/pods/a/b%d", "/livez/%d", "/api/v1/nodes?dryRun=%d"} {
			r := httptest.NewRequest("GET", fmt.Sprintf(path, i), nil)
			r.Method = []string{"GET", "BREW", fmt.Sprint("BREW", i)}[i%3]
			r.Header.Set("X-User", fmt.Sprint("user", i))
			s.Handler().ServeHTTP(httptest.NewRecorder(), r)
			r.Method = http.MethodPatch
			r.Header.Set("X-Group", "system:masters")
			s.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	for i := range 3 {
		hostile(i)
	}
	scrape(t, s)
	before := len(scrape(t, s))
	for i := range 100 {
		hostile(3 + i)
	}
	if after := len(scrape(t, s)); after > before {
		t.Errorf("hostile requests made %d more lines of metrics", after-before)
	}
}
