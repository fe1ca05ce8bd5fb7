package webhooks_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/condition"
	"github.com/sampan-io/sampan/apiserver/admission/webhooks"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
)

// served is an API server whose admission plug-ins are those of this package, and the namespace lifecycle.
type served struct {
	*testing.T
	admin   *apiserver.Local
	objects admission.Reader
	http    *httptest.Server
	metrics *webhooks.Metrics
	matches *condition.Metrics

	mutating   webhooks.Mutating
	validating webhooks.Validating
}

type everybody struct{}

func (everybody) Authenticate(*http.Request) (*auth.User, error) {
	return &auth.User{Name: "admin", UID: "7", Groups: []string{auth.GroupMasters}, Extra: map[string][]string{"ship": {"junk"}}}, nil
}

func serve(t *testing.T) *served {
	t.Helper()
	f := &served{T: t, metrics: webhooks.NewMetrics(), matches: condition.NewMetrics()}
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		f.objects = operation.NewReader(o.Catalog, o.Store)
		opts := webhooks.Options{Objects: f.objects, Metrics: f.metrics, Conditions: f.matches, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		var err error
		if f.mutating, err = webhooks.NewMutating(opts); err != nil {
			t.Fatal(err)
		}
		if f.validating, err = webhooks.NewValidating(opts); err != nil {
			t.Fatal(err)
		}
		o.Auth = everybody{}
		o.Admission = []admission.Plugin{admission.NewNamespaceLifecycle(f.objects), f.mutating, f.validating}
		o.Connect[catalog.PodExec] = func(w http.ResponseWriter, _ *http.Request, _ httpserver.ConnectRequest) {
			w.WriteHeader(http.StatusNoContent)
		}
	})
	f.http = httptest.NewServer(s.Handler())
	t.Cleanup(f.http.Close)
	f.admin = s.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}})
	f.do("POST", "/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ship"}}).want(201)
	return f
}

type answer struct {
	*testing.T
	code    int
	body    []byte
	warning []string
}

// want checks the code, and that the answer contains texts.
func (a *answer) want(code int, texts ...string) *answer {
	a.Helper()
	var s metav1.Status
	message := string(a.body)
	if json.Unmarshal(a.body, &s) == nil && s.Kind == "Status" && s.Message != "" {
		message = s.Message
	}
	if a.code != code {
		a.Fatalf("%d %s, want %d", a.code, message, code)
	}
	for _, text := range texts {
		if !strings.Contains(message, text) {
			a.Fatalf("%s, want %q", message, text)
		}
	}
	return a
}

func (a *answer) into(obj any) {
	a.Helper()
	if err := json.Unmarshal(a.body, obj); err != nil {
		a.Fatalf("%s: %v", a.body, err)
	}
}

func (f *served) do(method, path string, body any, headers ...string) *answer {
	f.Helper()
	var data []byte
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	default:
		var err error
		if data, err = json.Marshal(b); err != nil {
			f.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(f.Context(), method, f.http.URL+path, bytes.NewReader(data))
	if err != nil {
		f.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := f.http.Client().Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	return &answer{f.T, resp.StatusCode, b, resp.Header.Values("Warning")}
}

// register stores configurations. They have an effect at once.
func (f *served) register(all ...catalog.Object) {
	f.Helper()
	for _, obj := range all {
		resource := "mutatingwebhookconfigurations"
		if _, ok := obj.(*admissionregistrationv1.ValidatingWebhookConfiguration); ok {
			resource = "validatingwebhookconfigurations"
		}
		f.do("POST", "/apis/admissionregistration.k8s.io/v1/"+resource, obj).want(201)
	}
}

// A hook is a webhook server that keeps the requests it got.
type hook struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*admissionv1.AdmissionRequest // guarded by mu
}

func (h *hook) requests() []*admissionv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = nil
	return seen
}

// raw starts an HTTPS server that answers as handler does.
func raw(t *testing.T, handler func(w http.ResponseWriter, review *admissionv1.AdmissionReview)) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			t.Errorf("the webhook got no review: %v", err)
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		h.seen = append(h.seen, review.Request)
		h.mu.Unlock()
		handler(w, &review)
	}))
	t.Cleanup(h.Close)
	return h
}

// answering starts a webhook that answers with responses.
func answering(t *testing.T, respond func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *hook {
	t.Helper()
	return raw(t, func(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
		r := respond(review.Request)
		r.UID = review.Request.UID
		_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: r})
	})
}

func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func patched(text string) *admissionv1.AdmissionResponse {
	t := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(text), PatchType: &t}
}

func ca(h *hook) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

// everything matches all writes of the group of a resource; change completes it.
func everything(h *hook, change func(*admissionregistrationv1.MutatingWebhook)) admissionregistrationv1.MutatingWebhook {
	none := admissionregistrationv1.SideEffectClassNone
	w := admissionregistrationv1.MutatingWebhook{
		Name: "hook.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &h.URL, CABundle: ca(h)},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		}},
	}
	if change != nil {
		change(&w)
	}
	return w
}

func mutating(name string, all ...admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: all}
}

func validating(name string, all ...admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, w := range all {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: w.Name, SideEffects: w.SideEffects, AdmissionReviewVersions: w.AdmissionReviewVersions, ClientConfig: w.ClientConfig, Rules: w.Rules,
			FailurePolicy: w.FailurePolicy, MatchConditions: w.MatchConditions, TimeoutSeconds: w.TimeoutSeconds,
		})
	}
	return c
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name}, Data: map[string]string{"a": "b"}}
}

const maps = "/api/v1/namespaces/ship/configmaps"

func TestMutatingChangesObjects(t *testing.T) {
	f := serve(t)
	h := answering(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.Operation == admissionv1.Delete {
			return allow(r)
		}
		a := patched(`[{"op":"add","path":"/data/hook","value":"` + string(r.Operation) + `"}]`)
		a.Warnings = []string{"mind the gap"}
		return a
	})
	f.register(mutating("m", everything(h, nil)))
	var made corev1.ConfigMap
	a := f.do("POST", maps+"?fieldManager=me", configMap("c")).want(201)
	if a.into(&made); made.Data["hook"] != "CREATE" || made.UID == "" || made.CreationTimestamp.IsZero() {
		t.Errorf("made %+v", made)
	}
	if len(a.warning) != 1 || a.warning[0] != `299 - "mind the gap"` {
		t.Errorf("warnings %q", a.warning)
	}
	if m := made.ManagedFields; len(m) != 1 || m[0].Manager != "me" || strings.Contains(m[0].FieldsV1.GetRawString(), "f:hook") {
		t.Errorf("managed fields %v: the webhook's field belongs to no manager", m)
	}
	r := h.requests()[0]
	if r.Name != "c" || r.Namespace != "ship" || r.Resource != metav1.GroupVersionResource(corev1.SchemeGroupVersion.WithResource("configmaps")) || r.Kind.Kind != "ConfigMap" ||
		*r.RequestKind != r.Kind || *r.RequestResource != r.Resource || *r.DryRun || r.OldObject.Raw != nil ||
		r.UserInfo.Username != "admin" || r.UserInfo.UID != "7" || r.UserInfo.Extra["ship"][0] != "junk" {
		t.Errorf("the webhook got %+v", r)
	}
	if string(r.Options.Raw) != `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"me"}` {
		t.Errorf("options %s", r.Options.Raw)
	}
	var shown corev1.ConfigMap
	if err := json.Unmarshal(r.Object.Raw, &shown); err != nil || shown.Kind != "ConfigMap" || shown.APIVersion != "v1" || shown.UID != "" || shown.Data["a"] != "b" {
		t.Errorf("object %s: %v", r.Object.Raw, err)
	}
	f.do("PATCH", maps+"/c", `{"data":{"a":"c"}}`).want(200, `"hook":"UPDATE"`)
	r = h.requests()[0]
	if r.Operation != admissionv1.Update || !strings.Contains(string(r.OldObject.Raw), `"a":"b"`) || !strings.Contains(string(r.Object.Raw), `"a":"c"`) || !strings.Contains(string(r.Options.Raw), `"UpdateOptions"`) {
		t.Errorf("update: %+v", r)
	}
	f.do("DELETE", maps+"/c", nil).want(200)
	if r = h.requests()[0]; r.Operation != admissionv1.Delete || r.Object.Raw != nil || !strings.Contains(string(r.OldObject.Raw), `"hook":"UPDATE"`) || !strings.Contains(string(r.Options.Raw), `"DeleteOptions"`) {
		t.Errorf("delete: %+v", r)
	}
	f.do("POST", maps, `{"metadata":{"generateName":"x-"}}`).want(500, "Internal error occurred: add operation does not apply: doc is missing path: ") // there is no data to add to
	h.requests()
}

func TestWebhooksSeeGeneratedNamesLate(t *testing.T) {
	f := serve(t)
	m, v := answering(t, allow), answering(t, allow)
	f.register(mutating("m", everything(m, nil)), validating("v", everything(v, nil)))
	f.do("POST", maps, `{"metadata":{"generateName":"x-"}}`).want(201)
	early, late := m.requests()[0], v.requests()[0]
	if early.Name != "" || late.Name != "" || strings.Contains(string(early.Object.Raw), `"name"`) || !strings.Contains(string(late.Object.Raw), `"name":"x-`) {
		t.Errorf("early %+v, late %+v", early, late)
	}
	if strings.Contains(string(early.Object.Raw), `"uid"`) || !strings.Contains(string(late.Object.Raw), `"uid"`) {
		t.Errorf("early %s, late %s", early.Object.Raw, late.Object.Raw)
	}
}

// A patch cannot break what the server relies on.
func TestPatchesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		patch  string
		create int
		text   string
		update int // 0 is not tried
		also   string
	}{
		"another name":      {`[{"op":"replace","path":"/metadata/name","value":"other"}]`, 201, `"name":"other"`, 422, "field is immutable"},
		"no metadata":       {`[{"op":"remove","path":"/metadata"}]`, 422, "metadata.name: Required value: name or generateName is required", 422, "metadata.name"},
		"another namespace": {`[{"op":"add","path":"/metadata/namespace","value":"other"}]`, 400, "the namespace of the provided object does not match the namespace sent on the request", 422, "field is immutable"},
		"another uid":       {`[{"op":"add","path":"/metadata/uid","value":"7"}]`, 201, `"uid":"`, 422, "field is immutable"},
		"an invalid object": {`[{"op":"add","path":"/data","value":{"a b":"c"}}]`, 422, "a valid config key must consist of", 422, "a valid config key must consist of"},
		"the wrong type":    {`[{"op":"add","path":"/data","value":7}]`, 500, "cannot unmarshal number", 500, "Internal error occurred"},
		"an unknown field":  {`[{"op":"add","path":"/datum","value":7}]`, 201, "", 200, ""},
		"another kind":      {`[{"op":"replace","path":"/kind","value":"Secret"}]`, 500, "Internal error occurred", 500, ""},
		"a deletion":        {`[{"op":"add","path":"/metadata/deletionTimestamp","value":"2020-01-01T00:00:00Z"}]`, 201, "", 422, "field is immutable"},
		"nothing":           {`[]`, 201, "", 200, ""},
		"null":              {`[{"op":"replace","path":"","value":null}]`, 500, "", 500, ""},
		"no patch":          {`{"op":"add"}`, 500, `failed calling webhook "hook.example.com": received undecodable patch in webhook response: `, 500, ""},
		"a missing path":    {`[{"op":"remove","path":"/a/b"}]`, 500, "Internal error occurred", 500, ""},
		"managed fields":    {`[{"op":"add","path":"/metadata/managedFields","value":[{"manager":"x","operation":"Sing"}]}]`, 201, "", 200, ""},
		"a bomb": {
			`[{"op":"add","path":"/data/a","value":"` + strings.Repeat("x", 1<<20) + `"},{"op":"copy","from":"/data","path":"/metadata/annotations"},{"op":"copy","from":"/data","path":"/binaryData"},{"op":"copy","from":"/data","path":"/immutable"},{"op":"copy","from":"/data","path":"/x"}]`,
			500, "Internal error occurred", 500, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t)
			h := answering(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return patched(c.patch) })
			f.do("POST", maps, configMap("old")).want(201)
			f.register(mutating("m", everything(h, nil)))
			a := f.do("POST", maps, configMap("c")).want(c.create, c.text)
			if name == "another uid" && strings.Contains(string(a.body), `"uid":"7"`) {
				t.Errorf("the webhook set the uid: %s", a.body)
			}
			if name == "a deletion" && strings.Contains(string(a.body), "deletionTimestamp") {
				t.Errorf("the webhook deleted the object: %s", a.body)
			}
			if name == "managed fields" && (len(a.warning) == 0 || !strings.Contains(a.warning[0], "managedFields was in an invalid state after admission")) {
				t.Errorf("warnings %q", a.warning)
			}
			if c.update != 0 {
				f.do("PATCH", maps+"/old", `{"data":{"b":"c"}}`).want(c.update, c.also)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		result *metav1.Status
		code   int
		text   string
	}{
		"without a word": {nil, 400, `admission webhook "hook.example.com" denied the request without explanation`},
		"a message":      {&metav1.Status{Message: "too late", Code: 403, Reason: metav1.StatusReasonForbidden}, 403, `admission webhook "hook.example.com" denied the request: too late`},
		"a reason":       {&metav1.Status{Reason: "Tired"}, 400, `denied the request: Tired`},
		"a success":      {&metav1.Status{Status: "Success", Code: 200, Message: "fine"}, 400, `denied the request: fine`},
		"no HTTP code":   {&metav1.Status{Code: 70000, Message: "far"}, 599, `denied the request: far`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mutates := range []bool{true, false} {
				f := serve(t)
				h := answering(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					return &admissionv1.AdmissionResponse{Result: c.result, Warnings: []string{"soon"}}
				})
				if mutates {
					f.register(mutating("m", everything(h, nil)))
				} else {
					f.register(validating("v", everything(h, nil)))
				}
				if a := f.do("POST", maps, configMap("c")).want(c.code, c.text); len(a.warning) != 1 {
					t.Errorf("warnings %q", a.warning)
				}
			}
		})
	}
}

// Broken webhooks fail the request, or are passed over: as the failure policy says.
func TestFailurePolicy(t *testing.T) {
	reply := func(text string) func(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
		return func(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "UID", string(review.Request.UID)))
		}
	}
	const head, tail = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":`, `}`
	gone := raw(t, reply(""))
	gone.Close()
	for name, c := range map[string]struct {
		hook   *hook
		change func(*admissionregistrationv1.MutatingWebhook)
		text   string
		only   string // "m" or "v": for that plug-in alone
	}{
		"nobody there":   {hook: gone, text: `failed calling webhook "hook.example.com": failed to call webhook: Post "` + gone.URL + `/?timeout=10s": dial tcp ` + gone.Listener.Addr().String() + `: connect: connection refused`},
		"garbage":        {hook: raw(t, reply("<html>")), text: "failed to call webhook: couldn't get version/kind; json parse error: "},
		"null":           {hook: raw(t, reply("null")), text: "failed to call webhook: couldn't get version/kind; json parse error: "},
		"an empty list":  {hook: raw(t, reply("[]")), text: "failed to call webhook: couldn't get version/kind; json parse error: "},
		"nothing":        {hook: raw(t, reply("")), text: "0-length response with status code: 200"},
		"no response":    {hook: raw(t, reply("{}")), text: "received invalid webhook response: webhook response was absent"},
		"a wrong uid":    {hook: raw(t, reply(head+`{"uid":"x","allowed":true}`+tail)), text: `received invalid webhook response: expected response.uid="`},
		"a wrong kind":   {hook: raw(t, reply(`{"apiVersion":"v1","kind":"Pod","response":{"uid":"UID","allowed":true}}`)), text: "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /v1, Kind=Pod"},
		"only a patch":   {hook: raw(t, reply(head+`{"uid":"UID","allowed":true,"patch":"W10="}`+tail)), text: "webhook returned response.patch but not response.patchType", only: "m"},
		"only a type":    {hook: raw(t, reply(head+`{"uid":"UID","allowed":true,"patchType":"JSONPatch"}`+tail)), text: "webhook returned response.patchType but not response.patch", only: "m"},
		"another type":   {hook: raw(t, reply(head+`{"uid":"UID","allowed":true,"patch":"W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2RhdGEifV0=","patchType":"Merge"}`+tail)), text: `unsupported patch type "Merge"`, only: "m"},
		"a patch":        {hook: raw(t, reply(head+`{"uid":"UID","allowed":true,"patch":"W10="}`+tail)), text: "validating webhook may not return response.patch", only: "v"},
		"no certificate": {hook: raw(t, reply("")), change: func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = nil }, text: "x509: certificate signed by unknown authority"},
		"no PEM":         {hook: raw(t, reply("")), change: func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = []byte("ca") }, text: "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"},
	} {
		for _, plugin := range []string{"m", "v"} {
			if c.only != "" && c.only != plugin {
				continue
			}
			for _, ignore := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/%v", name, plugin, ignore), func(t *testing.T) {
					f := serve(t)
					w := everything(c.hook, c.change)
					if ignore {
						policy := admissionregistrationv1.Ignore
						w.FailurePolicy = &policy
					}
					if plugin == "m" {
						f.register(mutating("m", w))
					} else {
						f.register(validating("v", w))
					}
					if ignore {
						f.do("POST", maps, configMap("c")).want(201)
						return
					}
					f.do("POST", maps, configMap("c")).want(500, "Internal error occurred: failed calling webhook \"hook.example.com\": ", c.text)
					// The administrator can always take the configuration away.
					f.do("DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", nil).want(200)
					f.do("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", nil).want(200)
					f.do("POST", maps, configMap("c")).want(201)
				})
			}
		}
	}
}

func TestDryRun(t *testing.T) {
	f := serve(t)
	h := answering(t, allow)
	f.register(mutating("m", everything(h, nil)))
	f.do("POST", maps+"?dryRun=All", configMap("c")).want(201)
	if r := h.requests()[0]; !*r.DryRun {
		t.Errorf("the webhook got %+v", r)
	}
	stored, err := f.objects.List(t.Context(), admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	// Such an object was accepted by older versions only.
	c := stored[0].DeepCopyObject().(*admissionregistrationv1.MutatingWebhookConfiguration)
	unknown := admissionregistrationv1.SideEffectClassUnknown
	c.Webhooks[0].SideEffects, c.ResourceVersion = &unknown, "0"
	f.mutating.Configure([]catalog.Object{c})
	f.do("POST", maps+"?dryRun=All", configMap("c")).want(400, `admission webhook "hook.example.com" does not support dry run`)
	if len(h.requests()) != 0 {
		t.Error("the webhook was called")
	}
	f.do("POST", maps, configMap("c")).want(201)
}

// Webhooks with IfNeeded are called once more when a later one changed the object, and not a third time.
func TestReinvocation(t *testing.T) {
	f := serve(t)
	count := func(name string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var c corev1.ConfigMap
			_ = json.Unmarshal(r.Object.Raw, &c)
			return patched(fmt.Sprintf(`[{"op":"add","path":"/data/%s","value":%q}]`, name, c.Data[name]+"x"))
		}
	}
	a, b, c := answering(t, count("a")), answering(t, count("b")), answering(t, count("c"))
	needed := admissionregistrationv1.IfNeededReinvocationPolicy
	again := func(w *admissionregistrationv1.MutatingWebhook) { w.ReinvocationPolicy = &needed }
	f.register(mutating("3", everything(c, again)), mutating("1", everything(a, again)), mutating("2", everything(b, nil)))
	var made corev1.ConfigMap
	f.do("POST", maps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"z": ""}}).want(201).into(&made)
	if made.Data["a"] != "xx" || made.Data["b"] != "x" || made.Data["c"] != "xx" {
		t.Errorf("data %v: want a called again because of b, c because of a, and b once", made.Data)
	}
}

func TestSubresourcesAndConnections(t *testing.T) {
	f := serve(t)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "d"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	f.do("POST", "/apis/apps/v1/namespaces/ship/deployments", d).want(201)
	f.do("POST", "/api/v1/namespaces/ship/pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: d.Spec.Template.Spec}).want(201)
	h := answering(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.SubResource == "scale" {
			return patched(`[{"op":"replace","path":"/spec/replicas","value":3}]`)
		}
		return allow(r)
	})
	f.register(mutating("m", everything(h, nil)))

	f.do("PATCH", "/apis/apps/v1/namespaces/ship/deployments/d/scale", `{"spec":{"replicas":2}}`).want(200, `"replicas":3`)
	r := h.requests()[0]
	if r.Kind.Kind != "Scale" || r.Resource.Resource != "deployments" || r.RequestSubResource != "scale" || !strings.Contains(string(r.Object.Raw), `"replicas":2`) ||
		!strings.Contains(string(r.OldObject.Raw), `"kind":"Scale"`) {
		t.Errorf("scale: %+v", r)
	}
	f.do("PATCH", "/api/v1/namespaces/ship/pods/p/status", `{"status":{"phase":"Running"}}`).want(200)
	if r := h.requests()[0]; r.Kind.Kind != "Pod" || r.SubResource != "status" {
		t.Errorf("status: %+v", r)
	}
	f.do("POST", "/api/v1/namespaces/ship/pods/p/exec?command=a&command=b&stdin=true&container=c", nil).want(204)
	r = h.requests()[0]
	if r.Operation != admissionv1.Connect || r.Kind.Kind != "PodExecOptions" || r.OldObject.Raw != nil ||
		!strings.Contains(string(r.Object.Raw), `"stdin":true,"container":"c","command":["a","b"]`) {
		t.Errorf("exec: %s %+v", r.Object.Raw, r)
	}
	f.do("GET", "/api/v1/namespaces/ship/pods/p/log", nil)
	if seen := h.requests(); len(seen) != 0 {
		t.Errorf("logs: %+v", seen[0])
	}
	f.do("POST", "/api/v1/namespaces/ship/pods/p/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`).want(201)
	if seen := h.requests(); len(seen) != 1 || seen[0].Kind.Kind != "Eviction" || seen[0].OldObject.Raw != nil {
		t.Errorf("eviction: %+v", seen)
	}
}

// A webhook gets the version that its rule names, and the request's own beside it.
func TestEquivalentVersions(t *testing.T) {
	f := serve(t)
	h := answering(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patched(`[{"op":"replace","path":"/spec/maxReplicas","value":9},{"op":"add","path":"/spec/metrics/0/resource/target/averageUtilization","value":70}]`)
	})
	f.register(mutating("m", everything(h, func(w *admissionregistrationv1.MutatingWebhook) {
		w.Rules[0].Rule = admissionregistrationv1.Rule{APIGroups: []string{"autoscaling"}, APIVersions: []string{"v2"}, Resources: []string{"*"}}
	})))
	f.do("POST", "/apis/autoscaling/v1/namespaces/ship/horizontalpodautoscalers",
		`{"metadata":{"name":"h"},"spec":{"maxReplicas":2,"targetCPUUtilizationPercentage":50,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`).
		want(201, `"maxReplicas":9`, `"targetCPUUtilizationPercentage":70`, `"apiVersion":"autoscaling/v1"`)
	r := h.requests()[0]
	if r.Kind.Version != "v2" || r.Resource.Version != "v2" || r.RequestKind.Version != "v1" || r.RequestResource.Version != "v1" || !strings.Contains(string(r.Object.Raw), `"apiVersion":"autoscaling/v2"`) {
		t.Errorf("the webhook got %+v", r)
	}
}

func TestMatchConditions(t *testing.T) {
	f := serve(t)
	h := answering(t, allow)
	condition := func(text string) func(*admissionregistrationv1.MutatingWebhook) {
		return func(w *admissionregistrationv1.MutatingWebhook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: text}}
		}
	}
	f.register(mutating("m", everything(h, condition("object.metadata.name != 'no' && request.operation == 'CREATE'"))))
	f.do("POST", maps, configMap("no")).want(201)
	f.do("POST", maps, configMap("yes")).want(201)
	if seen := h.requests(); len(seen) != 1 || seen[0].Name != "yes" {
		t.Errorf("calls %+v", seen)
	}
	f.register(validating("a", everything(h, func(w *admissionregistrationv1.MutatingWebhook) {
		condition("object.data.none == 'x'")(w)
		w.Name, w.FailurePolicy = "ignores.example.com", new(admissionregistrationv1.Ignore)
		w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{Name: "d", Expression: "false"})
	})))
	f.do("POST", maps, configMap("b")).want(201)
	f.register(validating("v", everything(h, condition("object.data.none == 'x'"))))
	f.do("POST", maps, configMap("c")).want(403, `configmaps "c" is forbidden: expression 'object.data.none == 'x'' resulted in error: no such key: none`)
	// Conditions that hold are not measured, and the request is not excluded if it is refused.
	want := []string{
		"apiserver_admission_match_condition_evaluation_errors_total webhook hook.example.com CREATE validate 1",
		"apiserver_admission_match_condition_evaluation_errors_total webhook ignores.example.com CREATE validate 2",
		"apiserver_admission_match_condition_evaluation_seconds webhook hook.example.com CREATE admit 1",
		"apiserver_admission_match_condition_evaluation_seconds webhook hook.example.com CREATE validate 1",
		"apiserver_admission_match_condition_evaluation_seconds webhook ignores.example.com CREATE validate 2",
		"apiserver_admission_match_condition_exclusions_total webhook hook.example.com CREATE admit 1",
		"apiserver_admission_match_condition_exclusions_total webhook ignores.example.com CREATE validate 2",
	}
	if got := f.measured(); !slices.Equal(got, want) {
		t.Errorf("metrics\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// measured returns the metrics of match conditions, sorted, with the values of their labels in the order of their names.
func (f *served) measured() (lines []string) {
	f.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.matches)
	families, err := registry.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			words := []string{family.GetName()}
			for _, label := range m.GetLabel() {
				words = append(words, label.GetValue())
			}
			count := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			lines = append(lines, strings.Join(append(words, fmt.Sprint(count)), " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// Validating webhooks are asked at the same time: here each waits for the others.
func TestValidatingAsksInParallel(t *testing.T) {
	f := serve(t)
	const n = 5
	var all sync.WaitGroup
	all.Add(n)
	var hooks []admissionregistrationv1.MutatingWebhook
	h := answering(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		all.Done()
		all.Wait()
		return allow(r)
	})
	for i := range n {
		hooks = append(hooks, everything(h, func(w *admissionregistrationv1.MutatingWebhook) { w.Name = fmt.Sprintf("h%d.example.com", i) }))
	}
	f.register(validating("v", hooks...))
	f.do("POST", maps, configMap("c")).want(201)
}

// The configurations themselves are never matched, nor are the nodes' leases if the administrator leaves them out.
func TestDeadWebhookForEverything(t *testing.T) {
	f := serve(t)
	h := answering(t, allow)
	h.Close()
	for i := range 100 {
		f.do("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", validating(fmt.Sprintf("v%d", i), everything(h, nil))).want(201)
	}
	f.register(mutating("m", everything(h, nil)))
	f.do("POST", maps, configMap("c")).want(500, "connection refused")
	if _, err := f.admin.Unseen().Create(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), "ship", "", configMap("own"), metav1.CreateOptions{}, ""); err != nil {
		t.Errorf("the server's own write: %v", err)
	}
	f.do("PATCH", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/m", `{"metadata":{"labels":{"a":"b"}}}`).want(200)
	f.do("DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/m", nil).want(200)
	f.do("POST", maps, configMap("c")).want(500, "connection refused")
	f.do("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", nil).want(200)
	f.do("POST", maps, configMap("c")).want(201)
}

// A webhook that is the API server itself gets no further than its own answer.
func TestWebhookIsTheServerItself(t *testing.T) {
	f := serve(t)
	proxy := httptest.NewTLSServer(f.http.Config.Handler)
	t.Cleanup(proxy.Close)
	w := everything(&hook{Server: proxy}, func(w *admissionregistrationv1.MutatingWebhook) {
		url := proxy.URL + maps
		w.ClientConfig.URL = &url
	})
	f.register(mutating("m", w))
	f.do("POST", maps, configMap("c")).want(500, `failed calling webhook "hook.example.com": failed to call webhook: `)
}

func TestConfigureKeepsConnections(t *testing.T) {
	f := serve(t)
	var addresses sync.Map
	h := &hook{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		addresses.Store(r.RemoteAddr, true)
		var review admissionv1.AdmissionReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}})
	}))
	t.Cleanup(h.Close)
	used := func() (n int) {
		addresses.Range(func(any, any) bool { n++; return true })
		return n
	}
	f.register(validating("v", everything(h, nil)))
	f.do("POST", maps, configMap("a")).want(201)
	f.do("PATCH", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v", `{"metadata":{"labels":{"a":"b"}}}`).want(200)
	f.do("POST", maps, configMap("b")).want(201)
	if used() != 1 {
		t.Errorf("%d connections, want the first one again after a change of labels", used())
	}
	more := append(ca(h), '\n')
	f.do("PATCH", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v", fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`, base64.StdEncoding.EncodeToString(more)), "Content-Type: application/json-patch+json").want(200)
	f.do("POST", maps, configMap("c")).want(201)
	if used() != 2 {
		t.Errorf("%d connections, want a new one after a change of the CA bundle", used())
	}
}

// The request ends with its client, not with the webhook.
func TestRequestEndsFirst(t *testing.T) {
	f := serve(t)
	quit, called := make(chan struct{}), make(chan struct{}, 2)
	h := raw(t, func(http.ResponseWriter, *admissionv1.AdmissionReview) {
		called <- struct{}{}
		<-quit
	})
	t.Cleanup(func() { close(quit) })
	f.register(mutating("m", everything(h, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-called; cancel() }()
	_, err := f.admin.Create(ctx, corev1.SchemeGroupVersion.WithResource("configmaps"), "ship", "", configMap("c"), metav1.CreateOptions{}, "")
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("Create: %v", err)
	}
	_, err = f.admin.Patch(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), "ship", "c", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "")
	if err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("Patch: %v", err)
	}
}
