package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/store"
)

// auditor returns an auditor with a policy in YAML, and what it has logged, once the server has ended.
func auditor(t *testing.T, rules string, change ...func(*audit.Config)) (*audit.Auditor, func() []audit.Event) {
	t.Helper()
	dir := t.TempDir()
	c := audit.DefaultConfig()
	c.PolicyFile, c.Log.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(c.PolicyFile, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&c)
	}
	a, err := audit.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return a, func() (events []audit.Event) {
		t.Helper()
		data, err := os.ReadFile(c.Log.Path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var e audit.Event
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" || e.AuditID == "" || e.RequestReceivedTimestamp.IsZero() || e.StageTimestamp.IsZero() {
				t.Errorf("incomplete event: %s", line)
			}
			events = append(events, e)
		}
		return events
	}
}

// find returns the only event of a stage, verb and URI.
func find(t *testing.T, events []audit.Event, stage audit.Stage, verb, uri string) audit.Event {
	t.Helper()
	var found []audit.Event
	for _, e := range events {
		if e.Stage == stage && e.Verb == verb && e.RequestURI == uri {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Errorf("%d events %s %s %s, want 1", len(found), stage, verb, uri)
		return audit.Event{}
	}
	return found[0]
}

func TestAuditRecordsRequests(t *testing.T) {
	a, events := auditor(t, `
rules:
- {level: None, nonResourceURLs: ["/livez*"]}
- {level: Metadata, resources: [{resources: [secrets]}]}
- {level: Request, resources: [{resources: [pods]}]}
- level: RequestResponse
`)
	f := serve(t, func(o *apiserver.Options) { o.Audit = a })
	created := f.do("POST", configMaps+"?fieldManager=m", configMap("a"), "Audit-ID: my-id", "X-Forwarded-For: 192.0.2.7")
	if created.code != 201 || created.header.Get("Audit-ID") != "my-id" {
		t.Errorf("code %d, Audit-ID %q", created.code, created.header.Get("Audit-ID"))
	}
	if a := f.do("GET", configMaps+"/missing", nil); a.code != 404 || len(a.header.Get("Audit-ID")) != 36 {
		t.Errorf("code %d, Audit-ID %q", a.code, a.header.Get("Audit-ID"))
	}
	f.do("GET", configMaps, nil)
	f.do("GET", configMaps+"?as=table", nil, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	f.do("PATCH", configMaps+"/a", `{"data":{"patched":"yes"}}`, merge)
	f.do("POST", "/api/v1/namespaces/default/secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}, StringData: map[string]string{"k": "hush"}})
	f.do("GET", "/version", nil, "X-User: mallory")
	f.do("GET", "/livez", nil)
	f.do("DELETE", configMaps+"/a", `{"gracePeriodSeconds":0}`)
	f.do("GET", configMaps+"/x", nil, "Impersonate-User: guest", "Impersonate-Group: visitors")
	for _, method := range []string{"FOO", "OPTIONS", "TRACE"} {
		f.refused(f.do(method, configMaps+"?method="+method, nil), 405, metav1.StatusReasonMethodNotAllowed, method)
		f.refused(f.do(method, configMaps+"?mallory="+method, nil, "X-User: mallory"), 403, metav1.StatusReasonForbidden, "")
		f.refused(f.do(method, "/version?method="+method, nil), 405, metav1.StatusReasonMethodNotAllowed, method)
	}
	f.close()
	all := events()
	for _, e := range all {
		if strings.Contains(e.RequestURI, "livez") || bytes.Contains(e.RequestObject, []byte("hush")) {
			t.Errorf("recorded against the policy: %+v", e)
		}
	}
	for _, method := range []string{"FOO", "OPTIONS", "TRACE"} {
		if e := find(t, all, audit.ResponseComplete, "", configMaps+"?method="+method); e.ResponseStatus == nil || e.ResponseStatus.Code != 405 || e.User.Username != "boss" {
			t.Errorf("%s: %+v", method, e)
		}
		if e := find(t, all, audit.ResponseComplete, "", configMaps+"?mallory="+method); e.ResponseStatus == nil || e.ResponseStatus.Code != 403 || e.User.Username != "mallory" {
			t.Errorf("%s: %+v", method, e)
		}
		if e := find(t, all, audit.ResponseComplete, strings.ToLower(method), "/version?method="+method); e.ResponseStatus == nil || e.ResponseStatus.Code != 405 {
			t.Errorf("%s: %+v", method, e)
		}
	}
	e := find(t, all, audit.ResponseComplete, "create", configMaps+"?fieldManager=m")
	if e.AuditID != "my-id" || e.User.Username != "boss" || e.UserAgent != "test" || len(e.SourceIPs) < 1 || e.SourceIPs[0] != "192.0.2.7" ||
		e.Annotations["authorization.k8s.io/decision"] != "allow" || e.Level != audit.RequestResponse {
		t.Errorf("creation: %+v", e)
	}
	if o := e.ObjectRef; o == nil || o.Resource != "configmaps" || o.Namespace != "default" || o.Name != "a" || o.APIVersion != "v1" {
		t.Errorf("the object of the creation is %+v", o)
	}
	if e.ResponseStatus == nil || e.ResponseStatus.Code != 201 || !bytes.Contains(e.RequestObject, []byte(`"k":"a"`)) || !bytes.Contains(e.ResponseObject, []byte(`"managedFields"`)) {
		t.Errorf("creation: %+v, %s, %s", e.ResponseStatus, e.RequestObject, e.ResponseObject)
	}
	if r := find(t, all, audit.RequestReceived, "create", configMaps+"?fieldManager=m"); r.ResponseStatus != nil || r.AuditID != "my-id" || !r.StageTimestamp.Equal(&r.RequestReceivedTimestamp) {
		t.Errorf("the start of the creation: %+v", r)
	}
	if e := find(t, all, audit.ResponseComplete, "get", configMaps+"/missing"); e.ResponseStatus == nil || e.ResponseStatus.Code != 404 || e.ResponseStatus.Reason != "NotFound" || e.ResponseStatus.Status != "Failure" {
		t.Errorf("not found: %+v", e.ResponseStatus)
	}
	if e := find(t, all, audit.ResponseComplete, "list", configMaps); !bytes.Contains(e.ResponseObject, []byte(`"ConfigMapList"`)) || !bytes.Contains(e.ResponseObject, []byte(`"k":"a"`)) {
		t.Errorf("list: %s", e.ResponseObject)
	}
	if e := find(t, all, audit.ResponseComplete, "list", configMaps+"?as=table"); !bytes.Contains(e.ResponseObject, []byte(`"Table"`)) {
		t.Errorf("table: %s", e.ResponseObject)
	}
	if e := find(t, all, audit.ResponseComplete, "patch", configMaps+"/a"); string(e.RequestObject) != `{"data":{"patched":"yes"}}` {
		t.Errorf("patch: %s", e.RequestObject)
	}
	if e := find(t, all, audit.ResponseComplete, "create", "/api/v1/namespaces/default/secrets"); e.Level != audit.Metadata || e.RequestObject != nil || e.ResponseObject != nil || e.ResponseStatus.Code != 201 {
		t.Errorf("a Secret: %+v", e)
	}
	if e := find(t, all, audit.ResponseComplete, "get", "/version"); e.ObjectRef != nil || e.User.Username != "mallory" || e.Annotations["authorization.k8s.io/decision"] != "forbid" || e.ResponseStatus.Code != 403 {
		t.Errorf("forbidden: %+v", e)
	}
	if e := find(t, all, audit.ResponseComplete, "delete", configMaps+"/a"); e.ResponseStatus.Status != "Success" || !bytes.Contains(e.RequestObject, []byte("gracePeriodSeconds")) {
		t.Errorf("deletion: %+v, %s", e.ResponseStatus, e.RequestObject)
	}
	if e := find(t, all, audit.ResponseComplete, "get", configMaps+"/x"); e.User.Username != "boss" || e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != "guest" ||
		e.ImpersonatedUser.Groups[0] != "visitors" || e.Annotations["authorization.k8s.io/decision"] != "forbid" {
		t.Errorf("impersonation: %+v", e)
	}
}

func TestAuditRecordsRequestsInProcess(t *testing.T) {
	a, events := auditor(t, "omitStages: [RequestReceived]\nomitManagedFields: true\nrules: [{level: RequestResponse}]\n")
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		o.Audit = a
		o.Authorizer = everything{}
	})
	local := s.As(boss)
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	if _, err := local.Create(t.Context(), gvr, "default", "", configMap("a"), metav1.CreateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := local.List(t.Context(), gvr, "default", metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range local.Watch(ctx, gvr, "default", metav1.ListOptions{ResourceVersion: "0"}) {
		cancel()
		break
	}
	cancel()
	if err := local.Delete(t.Context(), gvr, "default", "b", metav1.DeleteOptions{}); err == nil {
		t.Fatal("deleted what is not there")
	}
	all := events()
	if e := find(t, all, audit.ResponseComplete, "create", configMaps); e.User.Username != "boss" || e.ResponseStatus.Code != 201 || e.UserAgent != "boss" ||
		!bytes.Contains(e.RequestObject, []byte(`"k":"a"`)) || !bytes.Contains(e.ResponseObject, []byte(`"uid"`)) || bytes.Contains(e.ResponseObject, []byte("managedFields")) {
		t.Errorf("creation: %+v, %s", e, e.ResponseObject)
	}
	if e := find(t, all, audit.ResponseComplete, "list", configMaps); !bytes.Contains(e.ResponseObject, []byte(`"k":"a"`)) || bytes.Contains(e.ResponseObject, []byte("managedFields")) {
		t.Errorf("list: %s", e.ResponseObject)
	}
	find(t, all, audit.ResponseStarted, "watch", configMaps)
	find(t, all, audit.ResponseComplete, "watch", configMaps)
	if e := find(t, all, audit.ResponseComplete, "delete", configMaps+"/b"); e.ResponseStatus.Code != 404 {
		t.Errorf("deletion: %+v", e.ResponseStatus)
	}
}

func TestAuditOfWatchesFaultsAndBadCredentials(t *testing.T) {
	a, events := auditor(t, "rules: [{level: Metadata}]\n")
	f := serve(t, func(o *apiserver.Options) {
		o.Audit = a
		o.Discovery = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("out of rope") })
		o.Auth = failing{}
	})
	f.do("GET", "/version", nil)
	f.do("GET", configMaps, nil, "Authorization: Bearer x")
	ctx, cancel := context.WithCancel(t.Context())
	resp := f.open(ctx, "GET", configMaps+"?watch=true", nil)
	cancel()
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	f.close()
	all := events()
	if e := find(t, all, audit.Panic, "get", "/version"); e.ResponseStatus.Code != 500 || !strings.Contains(e.ResponseStatus.Message, "APIServer panic'd: out of rope") {
		t.Errorf("a fault: %+v", e.ResponseStatus)
	}
	if e := find(t, all, audit.ResponseStarted, "list", configMaps); e.User.Username != "" || e.ResponseStatus.Code != 401 {
		t.Errorf("a bad credential: %+v", e)
	}
	for _, s := range []audit.Stage{audit.RequestReceived, audit.ResponseStarted, audit.ResponseComplete} {
		find(t, all, s, "watch", configMaps+"?watch=true")
	}
	if len(all) != 6 { // and that the first request was received
		t.Errorf("%d events, want 6", len(all))
	}
}

// failing refuses requests with a bearer token.
type failing struct{}

func (failing) Authenticate(r *http.Request) (*auth.User, error) {
	if r.Header.Get("Authorization") != "" {
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	return byHeader{}.Authenticate(r)
}

func TestAuditOnAFullDisk(t *testing.T) {
	for mode, want := range map[audit.Mode]int{audit.ModeBlocking: 404, audit.ModeBatch: 404, audit.ModeStrict: 500} {
		a, _ := auditor(t, "rules: [{level: Metadata}]\n", func(c *audit.Config) { c.Log.Path, c.Log.MaxSize, c.Log.Batch.Mode = "/dev/full", 0, mode })
		f := serve(t, func(o *apiserver.Options) { o.Audit = a })
		got := f.do("GET", configMaps+"/a", nil)
		if got.code != want || want == 500 && !strings.Contains(string(got.body), "failed to store audit event") {
			t.Errorf("%s: %d %s, want %d", mode, got.code, got.body, want)
		}
	}
}

func TestAuditHasViolationsOfPodSecurity(t *testing.T) {
	a, events := auditor(t, "omitStages: [RequestReceived]\nrules: [{level: Metadata, resources: [{resources: [pods]}]}]\n")
	st := memory(t, store.Options{})
	f := serve(t, func(o *apiserver.Options) {
		reader := operation.NewReader(apiservertest.Kinds(t), st)
		p, err := admission.NewPodSecurity(reader)
		if err != nil {
			t.Fatal(err)
		}
		o.Store, o.Audit, o.Admission = st, a, []admission.Plugin{p}
		o.Authorizer = everything{}
	})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"pod-security.kubernetes.io/audit": "baseline"}}}
	f.create("/api/v1/namespaces", ns)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	f.create("/api/v1/namespaces/default/pods", pod)
	f.close()
	e := find(t, events(), audit.ResponseComplete, "create", "/api/v1/namespaces/default/pods")
	if v := e.Annotations["pod-security.kubernetes.io/audit-violations"]; !strings.HasPrefix(v, `would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`) {
		t.Errorf("violations %q", v)
	}
	if v := e.Annotations["pod-security.kubernetes.io/enforce-policy"]; v != "privileged:latest" {
		t.Errorf("policy %q", v)
	}
}

func TestAnswersHaveAnAuditIDWithoutAudit(t *testing.T) {
	f := serve(t)
	if a := f.do("GET", "/livez", nil, "Audit-ID: my-id"); !slices.Equal(a.header.Values("Audit-ID"), []string{"my-id"}) {
		t.Errorf("Audit-ID %q", a.header.Values("Audit-ID"))
	}
	version4 := regexp.MustCompile("^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
	seen := map[string]bool{}
	for _, path := range []string{"/livez", configMaps, configMaps + "/missing", "/nowhere", "/livez"} {
		a := f.do("GET", path, nil)
		id := a.header.Get("Audit-ID")
		if !version4.MatchString(id) || len(a.header.Values("Audit-ID")) != 1 || seen[id] {
			t.Errorf("%s: Audit-ID %q, want a new one", path, a.header.Values("Audit-ID"))
		}
		seen[id] = true
	}
}
