package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// byHeader believes the headers X-User and X-Group; without the first one the request has no credential.
type byHeader struct{}

func (byHeader) Authenticate(r *http.Request) (*auth.User, error) {
	switch name := r.Header.Get("X-User"); name {
	case "":
		return nil, nil // what an Authenticator answers to a request without a credential
	default:
		groups := r.Header.Values("X-Group")
		if len(groups) == 0 {
			groups = []string{"system:authenticated"}
		}
		return &auth.User{Name: name, Groups: groups}, nil
	}
}

// onlyBoss lets "boss" do everything and others look at health.
type onlyBoss struct{}

func (onlyBoss) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: a.User.Name == "boss" || a.Path == "/livez" || a.Path == "/readyz"}
}

var boss = auth.User{Name: "boss"}

// A fixture is a server with a store in memory, behind TLS and HTTP/2.
type fixture struct {
	*testing.T
	server *apiserver.Server
	store  *store.Store
	http   *httptest.Server
	local  *apiserver.Local

	handlers *sync.WaitGroup // that run
}

// close ends the connections and waits until the handlers of all requests have returned. A client has its answer before that.
func (f *fixture) close() {
	f.http.Close()
	f.handlers.Wait()
}

// unmeasured computes no objects.
func unmeasured(context.Context, []catalog.Object) ([]catalog.Object, error) { return nil, nil }

func options(t testing.TB, st *store.Store) apiserver.Options {
	nothing := func(w http.ResponseWriter, r *http.Request, c httpserver.ConnectRequest) {
		fmt.Fprintf(w, "%s of %s/%s for %s at %q", c.Subresource, c.Namespace, c.Name, c.User.Name, c.Path)
	}
	authorizer := rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All()), Objects: operation.NewReader(apiservertest.Kinds(t), st)})
	return apiserver.Options{
		Options: httpserver.Options{
			Store: st, Catalog: apiservertest.Kinds(t), Auth: byHeader{}, Authorizer: onlyBoss{},
			Connect: map[catalog.Handler]httpserver.ConnectHandler{catalog.PodLog: nothing, catalog.PodExec: nothing, catalog.PodAttach: nothing, catalog.PodPortForward: nothing, catalog.NodeProxy: nothing, catalog.PodProxy: nothing, catalog.ServiceProxy: nothing},
			Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		},
		Issue: map[catalog.Handler]operation.IssueHandler{
			catalog.ServiceAccountToken: func(ctx context.Context, parent catalog.Object, body runtime.Object) (runtime.Object, error) {
				u, _ := auth.UserFrom(ctx)
				body.(metav1.Object).SetName(parent.GetName() + " for " + u.Name)
				return body, nil
			},
			catalog.OwnAccess:     operation.Answer(authorizer.MayI),
			catalog.OwnRules:      operation.Answer(authorizer.MyRules),
			catalog.OwnIdentity:   operation.Answer(auth.WhoAmI),
			catalog.Access:        operation.Answer(authorizer.May),
			catalog.LocalAccess:   operation.Answer(authorizer.MayLocally),
			catalog.TokenIdentity: operation.Answer(auth.New(auth.Options{}).ReviewToken),
		},
		Compute: map[catalog.Handler]operation.ComputeHandler{catalog.PodUsage: unmeasured, catalog.NodeUsage: unmeasured, catalog.ComponentHealth: unmeasured},
	}
}

func memory(t testing.TB, opts store.Options) *store.Store {
	t.Helper()
	opts.Decode, opts.Terms = apiserver.NewLoader(apiservertest.Kinds(t)).Decode, apiserver.Terms(apiservertest.Kinds(t))
	opts.Claims = apiserver.Claims(apiservertest.Kinds(t))
	st, err := store.Open(t.Context(), nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func serve(t *testing.T, change ...func(*apiserver.Options)) *fixture {
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
	handlers, handler := new(sync.WaitGroup), s.Handler()
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		handler.ServeHTTP(w, r)
	}))
	h.EnableHTTP2 = true
	h.StartTLS()
	t.Cleanup(h.Close)
	return &fixture{t, s, st, h, s.As(boss), handlers}
}

// An answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// do sends a request as boss. Headers are "Name: value".
func (f *fixture) do(method, path string, body any, headers ...string) answer {
	f.Helper()
	resp := f.open(f.Context(), method, path, body, headers...)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

func (f *fixture) open(ctx context.Context, method, path string, body any, headers ...string) *http.Response {
	f.Helper()
	var data []byte
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	case []byte:
		data = b
	default:
		var err error
		if data, err = json.Marshal(b); err != nil {
			f.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, f.http.URL+path, bytes.NewReader(data))
	if err != nil {
		f.Fatal(err)
	}
	req.Header.Set("X-User", "boss")
	req.Header.Set("User-Agent", "test")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Impersonate-Group" {
			req.Header.Add(name, value)
			continue
		}
		if req.Header.Set(name, value); value == "" {
			req.Header.Del(name)
		}
	}
	resp, err := f.http.Client().Do(req)
	if err != nil {
		f.Fatal(err)
	}
	return resp
}

// into decodes a JSON answer that must have the code.
func into[T any](f *fixture, a answer, code int) T {
	f.Helper()
	var out T
	if a.code != code {
		f.Fatalf("code %d, want %d: %s", a.code, code, a.body)
	}
	if err := json.Unmarshal(a.body, &out); err != nil {
		f.Fatalf("%v: %s", err, a.body)
	}
	return out
}

// refused checks that an answer is a failure with that code, reason and text.
func (f *fixture) refused(a answer, code int, reason metav1.StatusReason, text string) metav1.Status {
	f.Helper()
	s := into[metav1.Status](f, a, code)
	if s.Kind != "Status" || s.APIVersion != "v1" || s.Status != metav1.StatusFailure || int(s.Code) != code || s.Reason != reason || !strings.Contains(s.Message, text) {
		f.Errorf("got %s\nwant code %d, reason %q, message with %q", a.body, code, reason, text)
	}
	return s
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func configMap(name string, labels ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": name}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		metav1.SetMetaDataLabel(&cm.ObjectMeta, key, value)
	}
	return cm
}

func (f *fixture) create(path string, obj any) metav1.PartialObjectMetadata {
	f.Helper()
	return into[metav1.PartialObjectMetadata](f, f.do("POST", path, obj), 201)
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

var (
	cmGVR = corev1.SchemeGroupVersion.WithResource("configmaps")
	pdGVR = corev1.SchemeGroupVersion.WithResource("pods")
)

func TestCRUD(t *testing.T) {
	f := serve(t)
	made := into[corev1.ConfigMap](f, f.do("POST", configMaps, configMap("a")), 201)
	if made.Kind != "ConfigMap" || made.APIVersion != "v1" || made.Namespace != "default" || made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() {
		t.Errorf("created %+v", made)
	}
	got := into[corev1.ConfigMap](f, f.do("GET", configMaps+"/a", nil), 200)
	if got.ResourceVersion != made.ResourceVersion || got.Data["k"] != "a" {
		t.Errorf("got %+v, want %+v", got, made)
	}

	got.Data["k"] = "b"
	updated := into[corev1.ConfigMap](f, f.do("PUT", configMaps+"/a", got), 200)
	if updated.ResourceVersion == made.ResourceVersion || updated.Data["k"] != "b" || updated.UID != made.UID {
		t.Errorf("updated %+v", updated)
	}
	f.refused(f.do("PUT", configMaps+"/a", got), 409, metav1.StatusReasonConflict,
		`Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again`)

	updated.ResourceVersion = ""
	same := into[corev1.ConfigMap](f, f.do("PUT", configMaps+"/a", updated), 200)
	if before := f.store.Revision(); same.ResourceVersion != fmt.Sprint(before) {
		t.Errorf("an update without changes made revision %s, newest is %d", same.ResourceVersion, before)
	}
	if same.ResourceVersion == "" || f.store.Revision() != 2 {
		t.Errorf("an update that changes nothing wrote: revision %d", f.store.Revision())
	}

	patched := into[corev1.ConfigMap](f, f.do("PATCH", configMaps+"/a", `{"data":{"x":"y"}}`, "Content-Type: application/merge-patch+json"), 200)
	if patched.Data["x"] != "y" || patched.Data["k"] != "b" {
		t.Errorf("patched %+v", patched)
	}

	f.create(configMaps, configMap("b"))
	list := into[corev1.ConfigMapList](f, f.do("GET", configMaps, nil), 200)
	if list.Kind != "ConfigMapList" || len(list.Items) != 2 || list.Items[0].Name != "a" || list.ResourceVersion != fmt.Sprint(f.store.Revision()) {
		t.Errorf("listed %+v", list)
	}

	gone := into[metav1.Status](f, f.do("DELETE", configMaps+"/a", nil), 200)
	if gone.Status != "Success" || gone.Details == nil || gone.Details.Name != "a" || gone.Details.Kind != "configmaps" || gone.Details.UID != made.UID {
		t.Errorf("deleted %+v", gone)
	}
	s := f.refused(f.do("GET", configMaps+"/a", nil), 404, metav1.StatusReasonNotFound, `configmaps "a" not found`)
	if s.Details == nil || s.Details.Name != "a" || s.Details.Kind != "configmaps" {
		t.Errorf("details %+v", s.Details)
	}
}

func TestRefusals(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	big := `{"data":{"k":"` + strings.Repeat("x", 3<<20) + `"}}`
	tests := []struct {
		name, method, path string
		body               any
		headers            []string
		code               int
		reason             metav1.StatusReason
		text               string
	}{
		{"exists", "POST", configMaps, configMap("a"), nil, 409, metav1.StatusReasonAlreadyExists, `configmaps "a" already exists`},
		{"missing", "GET", configMaps + "/x", nil, nil, 404, metav1.StatusReasonNotFound, `configmaps "x" not found`},
		{"update of what is missing", "PUT", configMaps + "/x", configMap("x"), nil, 404, metav1.StatusReasonNotFound, `configmaps "x" not found`},
		{"delete of what is missing", "DELETE", configMaps + "/x", nil, nil, 404, metav1.StatusReasonNotFound, `configmaps "x" not found`},
		{"another name", "PUT", configMaps + "/a", configMap("b"), nil, 400, metav1.StatusReasonBadRequest, "the name of the object (b) does not match the name on the URL (a)"},
		{"another namespace", "POST", configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "other"}}, nil, 400, metav1.StatusReasonBadRequest, "the namespace of the provided object does not match the namespace sent on the request"},
		{"a version on creation", "POST", configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}, nil, 400, metav1.StatusReasonBadRequest, "resourceVersion should not be set on objects to be created"},
		{"a version on an invalid creation", "POST", configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "A_", ResourceVersion: "1"}}, nil, 422, metav1.StatusReasonInvalid, "metadata.name: Invalid value"},
		{"a version on a creation that does not happen", "POST", configMaps + "?dryRun=All", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}, nil, 409, metav1.StatusReasonAlreadyExists, `configmaps "a" already exists`},
		{"a version that is none", "PUT", configMaps + "/a", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "x"}}, nil, 422, metav1.StatusReasonInvalid, "metadata.resourceVersion: Invalid value"},
		{"another uid", "PUT", configMaps + "/a", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "other"}}, nil, 409, metav1.StatusReasonConflict, "Precondition failed: UID in precondition: other, UID in object meta: "},
		{"no name", "POST", configMaps, configMap(""), nil, 422, metav1.StatusReasonInvalid, "metadata.name: Required value: name or generateName is required"},
		{"a bad name", "POST", configMaps, configMap("A_"), nil, 422, metav1.StatusReasonInvalid, `ConfigMap "A_" is invalid: metadata.name: Invalid value: "A_"`},
		{"broken JSON", "POST", configMaps, `{"metadata":`, nil, 400, metav1.StatusReasonBadRequest, `ConfigMap in version "v1" cannot be handled as a ConfigMap`},
		{"a wrong type", "POST", configMaps, `{"metadata":{"name":1}}`, nil, 400, metav1.StatusReasonBadRequest, "json: cannot unmarshal number into Go struct field"},
		{"another kind", "POST", configMaps, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n"}}`, nil, 400, metav1.StatusReasonBadRequest, `Pod in version "v1" cannot be handled as a ConfigMap`},
		{"unknown media type", "POST", configMaps, configMap("n"), []string{"Content-Type: text/html"}, 415, metav1.StatusReasonUnsupportedMediaType, "accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{"not acceptable", "GET", configMaps, nil, []string{"Accept: text/html"}, 406, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{"method of an object", "POST", configMaps + "/a", configMap("a"), nil, 405, metav1.StatusReasonMethodNotAllowed, `create is not supported on resources of kind "configmaps"`},
		{"method of a collection", "PUT", configMaps, configMap("a"), nil, 405, metav1.StatusReasonMethodNotAllowed, `update is not supported on resources of kind "configmaps"`},
		{"creation without a namespace", "POST", "/api/v1/configmaps", configMap("n"), nil, 405, metav1.StatusReasonMethodNotAllowed, ""},
		{"too large", "POST", configMaps, big, nil, 413, metav1.StatusReasonRequestEntityTooLarge, "Request entity too large: limit is 3145728"},
		{"apply", "PATCH", configMaps + "/a", `{}`, []string{"Content-Type: application/apply-patch+cbor"}, 415, metav1.StatusReasonUnsupportedMediaType, "accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"},
		{"a broken patch", "PATCH", configMaps + "/a", `{`, []string{"Content-Type: application/merge-patch+json"}, 400, metav1.StatusReasonBadRequest, "error decoding patch"},
		{"a patch to a wrong type", "PATCH", configMaps + "/a", `{"data":1}`, []string{"Content-Type: application/merge-patch+json"}, 422, metav1.StatusReasonInvalid, "patch: Invalid value"},
		{"a patch of an old version", "PATCH", configMaps + "/a", `{"metadata":{"resourceVersion":"999"}}`, []string{"Content-Type: application/merge-patch+json"}, 409, metav1.StatusReasonConflict, "the object has been modified"},
		{"a patch of the name", "PATCH", configMaps + "/a", `{"metadata":{"name":"b"}}`, []string{"Content-Type: application/merge-patch+json"}, 400, metav1.StatusReasonBadRequest, "does not match the name on the URL"},
		{"a bad dry run", "POST", configMaps + "?dryRun=Some", configMap("n"), nil, 422, metav1.StatusReasonInvalid, `dryRun: Unsupported value: ["Some"]: supported values: "All"`},
		{"a bad validation", "POST", configMaps + "?fieldValidation=Loose", configMap("n"), nil, 422, metav1.StatusReasonInvalid, "fieldValidation: Unsupported value"},
		{"a bad label selector", "GET", configMaps + "?labelSelector=a==b==c", nil, nil, 400, metav1.StatusReasonBadRequest, "found '=='"},
		{"a bad field selector", "GET", configMaps + "?fieldSelector=spec.x%3D1", nil, nil, 400, metav1.StatusReasonBadRequest, `"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"a field selector of the namespace of nodes", "GET", "/api/v1/nodes?fieldSelector=metadata.namespace%3Dx", nil, nil, 400, metav1.StatusReasonBadRequest, `field label not supported: metadata.namespace, want one of metadata.name, spec.unschedulable`},
		{"an old field selector of volumes", "GET", "/api/v1/persistentvolumes?fieldSelector=name%3Dx", nil, nil, 400, metav1.StatusReasonBadRequest, `"name" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"an export", "GET", configMaps + "/x?export=1", nil, nil, 400, metav1.StatusReasonBadRequest, "the export parameter, deprecated since v1.14, is no longer supported"},
		{"a watch that continues", "GET", configMaps + "?watch=1&continue=x", nil, nil, 422, metav1.StatusReasonInvalid, "resourceVersionMatch is forbidden when continue is provided"},
		{"a bad field selector of pods", "GET", pods + "?fieldSelector=spec.x%3D1", nil, nil, 400, metav1.StatusReasonBadRequest, `field label not supported: spec.x, want one of metadata.name, metadata.namespace, spec.`},
		{"a bad limit", "GET", configMaps + "?limit=x", nil, nil, 400, metav1.StatusReasonBadRequest, `parameter limit: "x" is not a number`},
		{"a bad continue", "GET", configMaps + "?continue=x", nil, nil, 400, metav1.StatusReasonBadRequest, "continue key is not valid"},
		{"continue with a version", "GET", configMaps + "?continue=x&resourceVersion=1", nil, nil, 400, metav1.StatusReasonBadRequest, "specifying resource version is not allowed when using continue"},
		{"a match without a version", "GET", configMaps + "?resourceVersionMatch=Exact", nil, nil, 422, metav1.StatusReasonInvalid, "resourceVersionMatch is forbidden unless resourceVersion is provided"},
		{"a version that is no number", "GET", configMaps + "?resourceVersion=x", nil, nil, 400, metav1.StatusReasonBadRequest, "resourceVersion"},
		{"a list of the future", "GET", configMaps + "?resourceVersion=999", nil, nil, 504, metav1.StatusReasonTimeout, "Too large resource version"},
		{"an object of the future", "GET", configMaps + "/a?resourceVersion=999", nil, nil, 504, metav1.StatusReasonTimeout, "Too large resource version"},
		{"a watch of the future", "GET", configMaps + "?watch=1&resourceVersion=999", nil, nil, 504, metav1.StatusReasonTimeout, "Too large resource version"},
		{"initial events without a match", "GET", configMaps + "?watch=1&sendInitialEvents=true", nil, nil, 422, metav1.StatusReasonInvalid, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"},
		{"initial events in a list", "GET", configMaps + "?sendInitialEvents=true", nil, nil, 422, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for list"},
		{"delete with another uid", "DELETE", configMaps + "/a", `{"preconditions":{"uid":"other"}}`, nil, 409, metav1.StatusReasonConflict, "the UID in the precondition (other) does not match the UID in record ("},
		{"delete with another version", "DELETE", configMaps + "/a", `{"preconditions":{"resourceVersion":"999"}}`, nil, 409, metav1.StatusReasonConflict, "the ResourceVersion in the precondition (999) does not match the ResourceVersion in record ("},
		{"delete in two ways", "DELETE", configMaps + "/a", `{"orphanDependents":true,"propagationPolicy":"Orphan"}`, nil, 422, metav1.StatusReasonInvalid, "cannot be both set"},
		{"delete with a body of another kind", "DELETE", configMaps + "/a", `{"kind":"Pod","apiVersion":"v1"}`, nil, 400, metav1.StatusReasonBadRequest, "a DELETE takes DeleteOptions"},
		{"forbidden", "GET", configMaps + "/a", nil, []string{"X-User: mate"}, 403, metav1.StatusReasonForbidden, `configmaps "a" is forbidden: User "mate" cannot get resource "configmaps" in API group "" in the namespace "default"`},
		{"forbidden before the body is read", "POST", configMaps, `{`, []string{"X-User: mate"}, 403, metav1.StatusReasonForbidden, `cannot create resource "configmaps"`},
		{"forbidden path", "GET", "/version", nil, []string{"X-User: mate"}, 403, metav1.StatusReasonForbidden, `User "mate" cannot get path "/version"`},
		{"nobody", "GET", configMaps, nil, []string{"X-User: "}, 403, metav1.StatusReasonForbidden, `configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		{"impersonation without a right to it", "GET", configMaps, nil, []string{"X-User: mate", "Impersonate-User: boss"}, 403, metav1.StatusReasonForbidden, `configmaps is forbidden: User "mate" cannot impersonate-on:user-info:list resource "configmaps" in API group "" in the namespace "default"`},
		{"impersonation of a user without rights", "GET", configMaps, nil, []string{"Impersonate-User: mate"}, 403, metav1.StatusReasonForbidden, `User "mate" cannot list resource "configmaps"`},
		{"impersonation of nobody", "GET", configMaps, nil, []string{"Impersonate-Group: crew"}, 400, metav1.StatusReasonBadRequest, "without impersonating a user"},
	}
	before := f.store.Revision()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sub := *f
			sub.T = t
			sub.refused(sub.do(tt.method, tt.path, tt.body, tt.headers...), tt.code, tt.reason, tt.text)
		})
	}
	if got := f.store.Revision(); got != before {
		t.Errorf("refused requests changed the store: revision %d, was %d", got, before)
	}
}

func TestErrorHasEncodingOfRequest(t *testing.T) {
	f := serve(t)
	for accept, want := range map[string]string{
		"application/json":                                 "application/json",
		"application/yaml":                                 "application/yaml",
		"application/vnd.kubernetes.protobuf":              "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf;stream=watch": "application/vnd.kubernetes.protobuf",
		"application/json;as=Table;g=meta.k8s.io;v=v1":     "application/json",
		"text/html": "application/json",
	} {
		a := f.do("GET", configMaps+"/x?watch=1&resourceVersion=x", nil, "Accept: "+accept)
		if got := a.header.Get("Content-Type"); got != want || a.code != 400 && a.code != 406 {
			t.Errorf("%s: %d in %s, want %s: %q", accept, a.code, got, want, a.body)
		}
	}
	if a := f.do("GET", configMaps+"/x", nil, "Accept: application/yaml"); !strings.HasPrefix(string(a.body), "apiVersion: v1\ncode: 404\n") {
		t.Errorf("YAML: %s", a.body)
	}
	f.refused(f.do("BREW", configMaps, nil), 405, metav1.StatusReasonMethodNotAllowed, "BREW")
}

// Below a served group there is a Status for what does not exist, and a page elsewhere.
func TestUnknownPaths(t *testing.T) {
	f := serve(t)
	for _, p := range []string{"/nowhere", "/apis/unknown.example.com/v1/pods", "/version"} {
		if a := f.do("GET", p, nil); a.code != 404 || string(a.body) != "404 page not found\n" {
			t.Errorf("%s: %d %s", p, a.code, a.body)
		}
	}
	for _, p := range []string{
		"/api/v1/nothings", "/api/v1/namespaces/default/nothings/x", "/api/v2/pods", "/apis/batch/v1/pods",
		"/api/v1/pods/x", "/api/v1/namespaces/default/nodes", configMaps + "/a/status", configMaps + "/a/b/c", "/api/v1/bindings/x", "/api/v1/configmaps/x",
	} {
		a := f.do("GET", p, nil)
		f.refused(a, 404, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		if strings.Contains(string(a.body), "causes") {
			t.Errorf("%s: %s", p, a.body)
		}
	}
}

// A request has the time that its parameter timeout names.
func TestTimeouts(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) {
		o.Discovery = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, limited := r.Context().Deadline()
			fmt.Fprint(w, limited)
		})
	})
	f.create("/api/v1/namespaces/default/pods", pod("a"))
	for _, method := range []string{"GET", "POST", "DELETE"} {
		f.refused(f.do(method, "/api/v1/namespaces/default/pods?timeout=x", nil), 400, metav1.StatusReasonBadRequest, `invalid timeout specified in the request URL - time: invalid duration "x"`)
	}
	f.refused(f.do("GET", "/apis?timeout=1", nil), 400, metav1.StatusReasonBadRequest, `invalid timeout specified in the request URL - time: missing unit in duration "1"`)
	f.refused(f.do("GET", "/api/v1/namespaces/default/pods?timeout=1ns", nil), 504, metav1.StatusReasonTimeout, "the request ended before it was done")
	for query, limited := range map[string]string{"": "false", "?timeout=0s": "true", "?timeout=32s": "true"} {
		if a := f.do("GET", "/apis"+query, nil); a.code != 200 || string(a.body) != limited {
			t.Errorf("%s: %d %s", query, a.code, a.body)
		}
	}
	for _, path := range []string{"/api/v1/namespaces/default/pods/a/log?timeout=x", "/api/v1/namespaces/default/pods?timeout=0s", "/api/v1/namespaces/default/pods?timeout=1h"} {
		if a := f.do("GET", path, nil); a.code != 200 {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}

func TestPaths(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) {
		o.Discovery = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "discovery ", r.URL.Path) })
		o.OpenAPI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic("boom") })
	})
	f.create("/api/v1/namespaces/default/pods", pod("a"))
	f.create("/api/v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	tests := []struct {
		method, path string
		code         int
		text         string
		headers      []string
	}{
		{"GET", "/livez", 200, "ok", []string{"X-User: "}},
		{"GET", "/readyz?verbose", 200, "[+]ping ok\n[+]etcd ok\n[+]serving ok\n[+]shutdown ok\nreadyz check passed\n", nil},
		{"GET", "/readyz/ping", 200, "ok", nil},
		{"GET", "/readyz/nothing", 404, "404 page not found\n", nil},
		{"GET", "/version", 200, "discovery /version", nil},
		{"GET", "/api/v1", 200, "discovery /api/v1", nil},
		{"GET", "/apis/batch/v1/", 200, "discovery /apis/batch/v1/", nil},
		{"GET", "/openapi/v3", 500, "this request caused a fault in the server", nil},
		{"GET", "/api/v1/namespaces/default/pods/a/log", 200, `log of default/a for boss at ""`, nil},
		{"POST", "/api/v1/nodes/n/proxy/metrics/x?y=z", 200, `proxy of /n for boss at "/metrics/x"`, nil},
		{"GET", "/api/v1/namespaces/default/pods/b/log", 404, `pods \"b\" not found`, nil},
		{"PUT", "/api/v1/namespaces/default/pods/a/log", 405, `update is not supported`, nil},
		{"GET", "/metrics", 200, `apiserver_request_total{code="404",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="log",verb="CONNECT",version="v1"} 1`, nil},
	}
	for _, tt := range tests {
		a := f.do(tt.method, tt.path, nil, tt.headers...)
		if a.code != tt.code || !strings.Contains(string(a.body), tt.text) {
			t.Errorf("%s %s: %d %s\nwant %d %s", tt.method, tt.path, a.code, a.body, tt.code, tt.text)
		}
	}
}

// watchdog is an admission plug-in that records what it is asked and how it ended.
type watchdog struct {
	change func(a *admission.Attributes) error
	ends   []bool
}

func (*watchdog) Name() string { return "watchdog" }

func (w *watchdog) Admit(_ context.Context, a *admission.Attributes) error {
	a.Done = append(a.Done, func(committed bool) { w.ends = append(w.ends, committed) })
	if w.change != nil {
		return w.change(a)
	}
	return nil
}

func TestRootListsThePaths(t *testing.T) {
	f := serve(t)
	got := into[metav1.RootPaths](f, f.do("GET", "/", nil), 200).Paths
	for _, want := range []string{"/api", "/api/v1", "/apis/batch/v1", "/apis/events.k8s.io", "/readyz/etcd", "/version"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in %q", want, got)
		}
	}
	f.refused(f.do("GET", "/", nil, "X-User: mate"), 403, metav1.StatusReasonForbidden, `User "mate" cannot get path "/"`)
}

func TestOlderFormOfTables(t *testing.T) {
	f := serve(t)
	f.create(configMaps, configMap("a"))
	got := into[metav1.Table](f, f.do("GET", configMaps, nil, "Accept: application/json;as=Table;v=v1beta1;g=meta.k8s.io"), 200)
	if got.APIVersion != "meta.k8s.io/v1beta1" || len(got.Rows) != 1 {
		t.Errorf("%+v", got)
	}
}
