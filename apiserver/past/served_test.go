package past_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/past"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/changes"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// users authenticates by a header, and authorizes: admin may do everything, dev reads ConfigMaps in the namespace a.
type users struct{}

func (users) Authenticate(r *http.Request) (*auth.User, error) {
	return &auth.User{Name: r.Header.Get("Test-User")}, nil
}

func (users) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	reads := a.Verb == "get" || a.Verb == "list"
	return rbac.Decision{Allowed: a.User.Name == "admin" || a.User.Name == "dev" && reads && a.Namespace == "a" && a.Resource == "configmaps"}
}

// A world is an API server with a history.
type world struct {
	testing.TB
	handler http.Handler
	api     *apiserver.Local
	store   *store.Store
	dir     string
	header  http.Header // of the last answer
}

func open(t testing.TB, keep time.Duration) *world {
	t.Helper()
	c := apiservertest.Kinds(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	dir := t.TempDir()
	backend, err := disk.Open(dir, disk.Options{Log: log, History: disk.History{Keep: keep}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), backend, store.Options{
		Decode: apiserver.NewLoader(c).Decode, Terms: apiserver.Terms(c), Claims: apiserver.Claims(c), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) {
		if err := st.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(g.Stop)
	<-st.Ready()
	history := past.New(past.Options{Store: st, Decode: func() func(string, []byte) (store.Value, error) { return apiserver.NewLoader(c).Decode }})
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		o.Store, o.Catalog, o.Past, o.Auth, o.Authorizer = st, c, history, users{}, users{}
		o.Reviewed = map[string]http.Handler{past.Path: &past.Handler{History: history, Catalog: c, Authorizer: users{}, Fail: httpserver.WriteError}}
	})
	return &world{t, s.Handler(), s.As(auth.User{Name: "admin"}), st, dir, nil}
}

// ask makes a request and returns the answer.
func (w *world) ask(user, method, path string) (code int, body string) {
	w.Helper()
	r := httptest.NewRequestWithContext(w.Context(), method, path, nil)
	r.Header.Set("Test-User", user)
	r.Header.Set("Accept", "application/json")
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	w.header = answer.Header()
	return answer.Code, answer.Body.String()
}

// changesOf returns the changes in an answer, each on a line.
func (w *world) changesOf(user, query string) (head changes.Header, lines []string) {
	w.Helper()
	code, body := w.ask(user, http.MethodGet, past.Path+"?"+query)
	if code != http.StatusOK {
		w.Fatalf("%s: %d %s", query, code, body)
	}
	in := bufio.NewScanner(strings.NewReader(body))
	in.Scan()
	if err := json.Unmarshal(in.Bytes(), &head); err != nil {
		w.Fatal(err)
	}
	ended := false
	for in.Scan() {
		var line struct {
			changes.Change
			changes.End
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			w.Fatal(err)
		}
		if ended = line.End.End; ended {
			continue
		}
		c := line.Change
		text := fmt.Sprintf("%s %s/%s %s by %s", c.Resource, c.Namespace, c.Name, c.Operation, c.User)
		for _, f := range c.Fields {
			text += fmt.Sprintf("; %s: %v -> %v", f.Path, f.Before, f.After)
		}
		lines = append(lines, strings.TrimSuffix(text+"; "+c.Note, "; "))
	}
	if !ended {
		w.Errorf("%s: the answer has no end", query)
	}
	return head, lines
}

func mapOf(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"key": value},
	}
}

func secretOf(value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"}, StringData: map[string]string{"password": value}}
}

// write creates or updates an object, and returns its resource version.
func (w *world) write(resource string, obj catalog.Object) string {
	w.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	got, err := w.api.Update(w.Context(), gvr, obj.GetNamespace(), obj.GetName(), obj, metav1.UpdateOptions{}, "")
	if err != nil {
		got, err = w.api.Create(w.Context(), gvr, obj.GetNamespace(), "", obj, metav1.CreateOptions{}, "")
	}
	if err != nil {
		w.Fatal(err)
	}
	return got.(catalog.Object).GetResourceVersion()
}

// TestHistoryIsThatOfReadableTypes compares the answers to an administrator and to a user with few rights.
func TestHistoryIsThatOfReadableTypes(t *testing.T) {
	w := open(t, time.Hour)
	first := w.write("configmaps", mapOf("a", "c", "1"))
	w.write("secrets", secretOf("hunter1"))
	w.write("configmaps", mapOf("b", "c", "1"))
	w.write("configmaps", mapOf("a", "c", "2"))
	w.write("secrets", secretOf("hunter2"))
	if err := w.api.Delete(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), "a", "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	created, deleted := "configmaps a/c created by admin", "configmaps a/c deleted by admin"
	changed := "configmaps a/c changed by admin; .data.key: 1 -> 2; .metadata.labels.value: 1 -> 2"
	masked := "secrets a/s changed by admin; .data.password: *** (before) -> *** (after)"

	head, got := w.changesOf("dev", "namespace=a")
	if want := []string{created, changed, deleted}; !slices.Equal(got, want) {
		t.Errorf("dev sees %q, want %q", got, want)
	}
	if !slices.Contains(head.Omitted, "secrets") || slices.Contains(head.Omitted, "configmaps") {
		t.Errorf("omitted are %q", head.Omitted)
	}
	_, got = w.changesOf("admin", "namespace=a&after="+first)
	if want := []string{"secrets a/s created by admin", changed, masked, deleted}; !slices.Equal(got, want) {
		t.Errorf("admin sees %q, want %q", got, want)
	}
	if _, got = w.changesOf("admin", "limit=2"); !slices.Equal(got, []string{masked, deleted}) {
		t.Errorf("the newest two are %q", got)
	}
	_, got = w.changesOf("admin", "resource=secrets&namespace=a&name=s&secrets=plain")
	if len(got) != 2 || !strings.Contains(got[1], "aHVudGVyMQ== -> aHVudGVyMg==") {
		t.Errorf("the plain values are %q", got)
	}
	for _, path := range []string{
		past.Path, past.Path + "?namespace=b", past.Path + "?resource=secrets&namespace=a", past.Path + "?resource=configmaps",
		"/api/v1/namespaces/a/secrets/s?at=" + first, "/api/v1/namespaces/a/secrets?at=" + first, "/api/v1/configmaps?at=" + first,
	} {
		if code, body := w.ask("dev", http.MethodGet, path); code != http.StatusForbidden || strings.Contains(body, "aHVudGVyMQ") {
			t.Errorf("dev gets %s: %d %s", path, code, body)
		}
	}
	for _, query := range []string{"?all=true", "?resource=secrets&namespace=a&name=s"} {
		if code, body := w.ask("dev", http.MethodDelete, past.Path+query); code != http.StatusForbidden {
			t.Errorf("dev purges: %d %s", code, body)
		}
	}
	if code, body := w.ask("admin", http.MethodDelete, past.Path+"?resource=secrets&namespace=a&name=s"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	_, got = w.changesOf("admin", "resource=secrets&namespace=a&name=s&secrets=plain")
	if want := []string{"secrets a/s created by admin", "secrets a/s changed by admin; its value was purged from the history"}; !slices.Equal(got, want) {
		t.Errorf("after the purge: %q", got)
	}
}

// TestAtShowsEarlierObjects reads a deleted object, a list with a selector, and a table.
func TestAtShowsEarlierObjects(t *testing.T) {
	w := open(t, time.Hour)
	w.write("configmaps", mapOf("a", "c", "1"))
	first := w.write("configmaps", mapOf("a", "d", "2"))
	w.write("configmaps", mapOf("a", "c", "2"))
	for path, want := range map[string]string{
		"/api/v1/namespaces/a/configmaps/c?at=" + first:                       `"data":{"key":"1"}`,
		"/api/v1/namespaces/a/configmaps?labelSelector=value%3D1&at=" + first: `"name":"c"`,
		"/api/v1/configmaps?fieldSelector=metadata.name%3Dd&at=" + first:      `"name":"d"`,
		"/api/v1/configmaps?limit=1&at=" + first:                              `"name":"d"`, // all in one part
	} {
		code, body := w.ask("admin", http.MethodGet, path)
		if got := w.header.Get(past.Header); got != first {
			t.Errorf("%s: the header has %q, want %q", path, got, first)
		}
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
	if _, body := w.ask("admin", http.MethodGet, "/api/v1/configmaps?labelSelector=value%3D1&at="+first); strings.Contains(body, `"name":"d"`) {
		t.Errorf("the selector is ignored: %s", body)
	}
}

func TestBadQuestionsAreRefused(t *testing.T) {
	w := open(t, time.Hour)
	w.write("configmaps", mapOf("a", "c", "1"))
	for path, want := range map[string]string{
		past.Path + "?resource=nothing":                   `resource: "nothing" is not a resource`,
		past.Path + "?resource=nodes.metrics.k8s.io":      "is not a resource with stored objects",
		past.Path + "?resource=pods&name=a":               "name: needs namespace as well",
		past.Path + "?name=a":                             "name: needs resource as well",
		past.Path + "?resource=pods&namespace=a&name=b/c": "must not contain a slash",
		past.Path + "?limit=0":                            "limit: must be from 1 to 10000",
		past.Path + "?limit=x":                            "limit: must be from 1 to 10000",
		past.Path + "?secrets=all":                        "secrets: must be masked or plain",
		past.Path + "?after=x":                            "after: must be a time such as",
		past.Path + "?to=99999":                           "to: must be a revision up to",
		"/api/v1/configmaps?at=-5m":                       "at: must be a time such as",
		"/api/v1/configmaps?at=2999-01-01T00:00:00Z":      "at: must not be in the future",
		"/api/v1/configmaps?at=1&continue=x":              "at: must not be used with continue",
		"/api/v1/configmaps?at=1&watch=true":              "at: must only be used with a read",
		"/apis/metrics.k8s.io/v1beta1/nodes?at=1":         "are not stored and have no history",
	} {
		if code, body := w.ask("admin", http.MethodGet, path); code != http.StatusBadRequest || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), want) {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
	for path, want := range map[string]int{"/api/v1/configmaps?at=10h": http.StatusGone, "/api/v1/namespaces/a/configmaps/none?at=1": http.StatusNotFound} {
		if code, body := w.ask("admin", http.MethodGet, path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := w.ask("admin", http.MethodPost, past.Path); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
	off := open(t, 0)
	for _, path := range []string{past.Path, "/api/v1/configmaps?at=1", "/api/v1/namespaces/a/configmaps/c?at=1m"} {
		if code, body := off.ask("admin", http.MethodGet, path); code != http.StatusBadRequest || !strings.Contains(body, "sampan up --history=24h") {
			t.Errorf("%s without history: %d %s", path, code, body)
		}
	}
}

// A request that does not read refuses the parameter, and so does one that does not say which moment it means: in
// place of an earlier state it would show, or delete, the present one.
func TestAtIsRefusedElsewhere(t *testing.T) {
	w := open(t, time.Hour)
	w.write("configmaps", mapOf("a", "other", "1"))
	const path = "/api/v1/namespaces/a/configmaps"
	for _, tt := range [][2]string{
		{http.MethodDelete, path + "/other?at=1h"},
		{http.MethodGet, path + "/other?at="},
		{http.MethodGet, path + "?at"},
		{http.MethodGet, path + "?at=1&at=2"},
		{http.MethodGet, path + "?at=1&watch=1"},
		{http.MethodPatch, path + "/other?fieldManager=m&at=1"},
	} {
		if code, body := w.ask("admin", tt[0], tt[1]); code != http.StatusBadRequest || !strings.Contains(body, `"at: must `) {
			t.Errorf("%s %s: %d %s", tt[0], tt[1], code, body)
		}
	}
	if code, body := w.ask("admin", http.MethodGet, path+"/other"); code != http.StatusOK {
		t.Errorf("the object is gone: %d %s", code, body)
	}
}
