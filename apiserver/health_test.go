package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/store"
)

// cramped is a medium without space for writes that free none.
type cramped struct{ store.Backend }

func (cramped) Commit(ctx context.Context, batch store.Batch) error {
	if !batch.Frees {
		return fmt.Errorf("writing: %w", store.ErrFull)
	}
	return nil
}

// everything is allowed.
type everything struct{}

func (everything) Authorize(context.Context, rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: true}
}

func TestHealth(t *testing.T) {
	full := onMedium(t, cramped{&backend{entries: map[string]store.Entry{}}})
	first := serve(t, func(o *apiserver.Options) { o.Store = full })
	first.refused(first.do("POST", configMaps, configMap("a")), 507, "InsufficientStorage", "")
	type want struct {
		code int
		text string
	}
	for name, tt := range map[string]struct {
		store *store.Store
		want  map[string]want
	}{
		"fine": {nil, map[string]want{
			"/livez":                        {200, "ok"},
			"/livez?verbose":                {200, "[+]ping ok\n[+]etcd ok\nlivez check passed\n"},
			"/readyz":                       {200, "ok"},
			"/readyz?verbose":               {200, "[+]ping ok\n[+]etcd ok\n[+]serving ok\n[+]shutdown ok\nreadyz check passed\n"},
			"/readyz/etcd":                  {200, "ok"},
			"/readyz/etcd?verbose":          {200, "ok"},
			"/readyz/":                      {404, "404 page not found\n"},
			"/readyz/nothing":               {404, "404 page not found\n"},
			"/livez/shutdown":               {404, "404 page not found\n"},
			"/healthz":                      {200, "ok"},
			"/healthz?verbose&exclude=etcd": {200, "[+]ping ok\n[+]etcd excluded: ok\nhealthz check passed\n"},
			"/livez?verbose&exclude=b&exclude=a&exclude=b": {200, "[+]ping ok\n[+]etcd ok\n" +
				"warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nlivez check passed\n"},
		}},
		"full": {full, map[string]want{
			"/livez":               {200, "ok"},
			"/livez/etcd":          {200, "ok"},
			"/readyz":              {500, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]serving ok\n[+]shutdown ok\nreadyz check failed\n"},
			"/readyz/etcd":         {500, "internal server error: writing: no space left for the store\n"},
			"/readyz/ping":         {200, "ok"},
			"/readyz?exclude=etcd": {200, "ok"},
			"/healthz":             {500, "[+]ping ok\n[-]etcd failed: reason withheld\nhealthz check failed\n"},
		}},
	} {
		f := serve(t, func(o *apiserver.Options) {
			o.Authorizer = everything{}
			if tt.store != nil {
				o.Store = tt.store
			}
		})
		for path, w := range tt.want {
			a := f.do("GET", path, nil)
			if a.code != w.code || string(a.body) != w.text {
				t.Errorf("%s: GET %s: %d %q, want %d %q", name, path, a.code, a.body, w.code, w.text)
			}
			if got := a.header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
				t.Errorf("%s: GET %s: Content-Type %q", name, path, got)
			}
		}
	}
}

// TestAFullStoreTakesTheWritesOfDeletions has an object with a finalizer go through its deletion.
func TestAFullStoreTakesTheWritesOfDeletions(t *testing.T) {
	medium := &fillable{Backend: &backend{entries: map[string]store.Entry{}}}
	f := serve(t, func(o *apiserver.Options) { o.Store = onMedium(t, medium) })
	m := configMap("a")
	m.Finalizers = []string{"example.com/hold"}
	f.create(configMaps, m)
	f.create(configMaps, configMap("b"))
	medium.full = true
	a := f.do("POST", configMaps, configMap("c"))
	f.refused(a, 507, "InsufficientStorage", "delete objects")
	if a := f.do("DELETE", configMaps+"/a", nil); a.code != 200 {
		t.Errorf("a deletion that waits: %d %s", a.code, a.body)
	}
	if a := f.do("PATCH", configMaps+"/a", `{"metadata":{"annotations":{"state":"going away"}}}`, merge); a.code != 200 {
		t.Errorf("an update of what is being deleted: %d %s", a.code, a.body)
	}
	if a := f.do("PATCH", configMaps+"/a", `{"metadata":{"finalizers":null}}`, merge); a.code != 200 {
		t.Errorf("the end of a deletion: %d %s", a.code, a.body)
	}
	if a := f.do("GET", configMaps+"/a", nil); a.code != 404 {
		t.Errorf("after the deletion: %d %s", a.code, a.body)
	}
	f.refused(f.do("PATCH", configMaps+"/b", `{"data":{"more":"than before"}}`, merge), 507, "InsufficientStorage", "")
	if a := f.do("PATCH", configMaps+"/b", `{"data":null}`, merge); a.code != 200 {
		t.Errorf("an update that frees space: %d %s", a.code, a.body)
	}
}

// fillable is a medium that can run full.
type fillable struct {
	store.Backend
	full bool // set between requests
}

func (b *fillable) Commit(ctx context.Context, batch store.Batch) error {
	if b.full && !batch.Frees {
		return store.ErrFull
	}
	return b.Backend.Commit(ctx, batch)
}

func TestEventsExpire(t *testing.T) {
	ttl := apiserver.TTL(apiservertest.Kinds(t), time.Minute)
	for key, want := range map[string]time.Duration{
		"events/default/a": time.Minute, "events/a": time.Minute, "pods/default/a": 0, "leases.coordination.k8s.io/a/b": 0, "eventsx/a": 0, "events": 0,
	} {
		if got := ttl(key); got != want {
			t.Errorf("the time to live of %s is %v, want %v", key, got, want)
		}
	}
	f := serve(t)
	f.create("/api/v1/namespaces/default/events", &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	})
	rec, err := f.store.Get("events/default/e")
	if err != nil {
		t.Fatal(err)
	}
	again := apiserver.Restate(rec.Value)
	again.Place(rec.Created, rec.Revision+1)
	if string(again.Bytes()) != string(rec.Value.Bytes()) {
		t.Error("the event is not the same in its deletion")
	}
}

func TestChecksOfOtherParts(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) {
		o.Authorizer = everything{}
		o.Checks = []httpserver.Check{{Name: "kms-providers", Run: func(context.Context) error { return errors.New("sealed") }}}
	})
	for path, want := range map[string]string{
		"/livez": "ok", "/readyz/kms-providers": "internal server error: sealed\n", "/livez/kms-providers": "404 page not found\n",
		"/readyz":  "[+]ping ok\n[+]etcd ok\n[-]kms-providers failed: reason withheld\n[+]serving ok\n[+]shutdown ok\nreadyz check failed\n",
		"/healthz": "[+]ping ok\n[+]etcd ok\n[-]kms-providers failed: reason withheld\nhealthz check failed\n",
	} {
		if a := f.do("GET", path, nil); string(a.body) != want {
			t.Errorf("GET %s: %d %q, want %q", path, a.code, a.body, want)
		}
	}
}
