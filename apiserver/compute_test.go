package apiserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
)

// measured computes the metrics of all pods but those called idle.
func measured(_ context.Context, from []catalog.Object) (out []catalog.Object, err error) {
	for _, obj := range from {
		p, ok := obj.(*corev1.Pod)
		if ok && p.Name != "idle" {
			out = append(out, &metricsv1beta1.PodMetrics{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels},
				Containers: []metricsv1beta1.ContainerMetrics{{Name: "web"}},
			})
		}
	}
	return out, nil
}

// TestComputedObjects reads objects that are made of others when they are read.
func TestComputedObjects(t *testing.T) {
	s := apiservertest.OpenBare(t, func(o *apiserver.Options) { o.Compute[catalog.PodUsage] = measured })
	api := s.As(auth.User{Name: "test"})
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	for _, ns := range []string{"default", "other"} {
		if _, err := api.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("namespaces"), "", "", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "idle"} {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}}}
			if name == "b" {
				p.Spec.NodeName = "n1"
			}
			if _, err := api.Create(t.Context(), pods, ns, "", p, metav1.CreateOptions{}, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	const base = "/apis/metrics.k8s.io/v1beta1"
	do := func(method, path, accept string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	for _, tt := range []struct{ path, want string }{
		{base + "/pods", "default/a default/b other/a other/b"},
		{base + "/namespaces/other/pods", "other/a other/b"},
		{base + "/namespaces/other/pods?labelSelector=app%3Db", "other/b"},
		{base + "/pods?fieldSelector=spec.nodeName%3Dn1", "default/b other/b"},
		{base + "/pods?fieldSelector=metadata.name%3Da", "default/a other/a"},
		{base + "/namespaces/none/pods", ""},
		{base + "/namespaces/other/pods?limit=2", "other/a other/b"},
		{base + "/namespaces/default/pods?labelSelector=app+in+%28idle,a%29", "default/a"},
	} {
		path, want := tt.path, tt.want
		w := do("GET", path, "application/json")
		var l metricsv1beta1.PodMetricsList
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != 200 || l.Kind != "PodMetricsList" || l.Items == nil || l.ResourceVersion != "" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		var names []string
		for _, m := range l.Items {
			names = append(names, m.Namespace+"/"+m.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
		if strings.Contains(path, "limit=2") && l.Continue == "" {
			t.Error("a page does not say that there is more")
		}
	}
	for _, tt := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", base + "/namespaces/other/pods/a", 200, `"name":"a"`},
		{"GET", base + "/namespaces/other/pods/idle", 404, `podmetrics.metrics.k8s.io \"other/idle\" not found`},
		{"GET", base + "/namespaces/other/pods/none", 404, `pods \"none\" not found`},
		{"GET", base + "/nodes/n1", 404, `nodes \"n1\" not found`},
		{"GET", base + "/pods?fieldSelector=spec.nonsense%3Dn1", 400, "field label not supported"},
		{"GET", base + "/pods?watch=true", 405, ""},
		{"GET", base + "/namespaces/other/pods?until=size%28items%29>0", 400, "cannot be waited for"},
		{"DELETE", base + "/namespaces/other/pods/a", 405, ""},
		{"POST", base + "/namespaces/other/pods", 405, ""},
		{"GET", "/apis/metrics.k8s.io/v1beta1", 200, `"kind":"PodMetrics","verbs":["get","list"]`},
	} {
		if w := do(tt.method, tt.path, "application/json"); w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, w.Code, w.Body, tt.code, tt.want)
		}
	}
	w := do("GET", base+"/namespaces/other/pods", "application/json;as=Table;g=meta.k8s.io;v=v1")
	var table metav1.Table
	if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil || w.Code != http.StatusOK || len(table.Rows) != 2 || len(table.ColumnDefinitions) != 4 {
		t.Errorf("as a table: %d %s", w.Code, w.Body)
	}
	if w := do("GET", base+"/namespaces/other/pods", "application/vnd.kubernetes.protobuf"); w.Code != 200 || !strings.HasPrefix(w.Body.String(), "k8s\x00") {
		t.Errorf("as protobuf: %d", w.Code)
	}
	// In the process as well.
	objs, _, err := api.List(t.Context(), metricsv1beta1.SchemeGroupVersion.WithResource("pods"), "other", metav1.ListOptions{LabelSelector: "app=b"})
	if err != nil || len(objs) != 1 || objs[0].(*metricsv1beta1.PodMetrics).Name != "b" {
		t.Errorf("in process: %v, %v", objs, err)
	}
}

// TestObjectsMadeFromNothing reads objects that are made from no stored ones.
func TestObjectsMadeFromNothing(t *testing.T) {
	healthy := func(_ context.Context, from []catalog.Object) (out []catalog.Object, err error) {
		if len(from) > 0 {
			t.Errorf("made from %d objects", len(from))
		}
		for _, name := range []string{"etcd-0", "scheduler"} {
			out = append(out, &corev1.ComponentStatus{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
				Conditions: []corev1.ComponentCondition{{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}},
			})
		}
		return out, nil
	}
	s := apiservertest.OpenBare(t, func(o *apiserver.Options) { o.Compute[catalog.ComponentHealth] = healthy })
	const base = "/api/v1/componentstatuses"
	for _, tt := range []struct {
		method, path string
		code         int
		want         []string
	}{
		{"GET", base, 200, []string{`"kind":"ComponentStatusList"`, `"name":"etcd-0"`, `"name":"scheduler"`}},
		{"GET", base + "?labelSelector=app%3Dscheduler&limit=1", 200, []string{`"items":[{"kind":"ComponentStatus","apiVersion":"v1","metadata":{"name":"scheduler"`}},
		{"GET", base + "?fieldSelector=metadata.name%3Detcd-0", 200, []string{`"items":[{"kind":"ComponentStatus","apiVersion":"v1","metadata":{"name":"etcd-0"`}},
		{"GET", base + "/scheduler", 200, []string{`"kind":"ComponentStatus"`, `"message":"ok"`}},
		{"GET", base + "/none", 404, []string{`componentstatuses \"none\" not found`}},
		{"GET", base + "?watch=true", 405, nil},
		{"DELETE", base + "/scheduler", 405, nil},
		{"POST", base, 405, nil},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != tt.code {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.path, w.Code, w.Body, tt.code)
		}
		for _, want := range tt.want {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s %s: %s lacks %s", tt.method, tt.path, w.Body, want)
			}
		}
		if warned := w.Header().Get("Warning"); tt.code == 200 && !strings.Contains(warned, "v1 ComponentStatus is deprecated in v1.19+") {
			t.Errorf("%s %s: warning %q", tt.method, tt.path, warned)
		}
	}
}
