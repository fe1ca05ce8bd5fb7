package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/store"
)

// A recorder remembers the last write that a store was asked for.
type recorder struct {
	*store.Store
	mu   sync.Mutex
	last store.Write // guarded by mu
}

func (r *recorder) Commit(ctx context.Context, w store.Write) (store.Record, error) {
	r.mu.Lock()
	r.last = w
	r.mu.Unlock()
	return r.Store.Commit(ctx, w)
}

func TestOnlyEventsAndRenewalsAreVolatile(t *testing.T) {
	rec := &recorder{}
	f := serve(t, func(o *apiserver.Options) {
		rec.Store = o.Store.(*store.Store)
		o.Store = rec
	})
	const (
		leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
		events = "/api/v1/namespaces/default/events"
		apply  = "Content-Type: application/apply-patch+yaml"
	)
	for _, tt := range []struct {
		what, method, path, body, header string
		want                             bool
	}{
		{"a new lease", "POST", leases, `{"metadata":{"name":"l"},"spec":{"holderIdentity":"a"}}`, "", false},
		{"a renewal", "PUT", leases + "/l", `{"metadata":{"name":"l","resourceVersion":"NOW"},"spec":{"holderIdentity":"a","renewTime":"2026-01-01T00:00:10.000000Z"}}`, "", true},
		{"a renewal by patch", "PATCH", leases + "/l", `{"spec":{"renewTime":"2026-01-01T00:00:20.000000Z"}}`, merge, true},
		{"a new holder", "PUT", leases + "/l", `{"metadata":{"name":"l","resourceVersion":"NOW"},"spec":{"holderIdentity":"b","renewTime":"2026-01-01T00:00:30.000000Z"}}`, "", false},
		{"a label", "PATCH", leases + "/l", `{"metadata":{"labels":{"a":"b"}}}`, merge, false},
		{"an applied lease", "PATCH", leases + "/m?fieldManager=m", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"m"},"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`, apply, false},
		{"an applied renewal", "PATCH", leases + "/m?fieldManager=m", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"m"},"spec":{"renewTime":"2026-01-01T00:00:10.000000Z"}}`, apply, true},
		{"a first renewal by another manager", "PATCH", leases + "/m?fieldManager=other", `{"spec":{"renewTime":"2026-01-01T00:00:20.000000Z"}}`, merge, false},
		{"its second renewal", "PATCH", leases + "/m?fieldManager=other", `{"spec":{"renewTime":"2026-01-01T00:00:30.000000Z"}}`, merge, true},
		{"a finalizer", "PATCH", leases + "/m", `{"metadata":{"finalizers":["a.b/c"]}}`, merge, false},
		{"a deletion that waits", "DELETE", leases + "/m", "", "", false},
		{"a deletion that ends", "PATCH", leases + "/m", `{"metadata":{"finalizers":null}}`, merge, false},
		{"a deletion", "DELETE", leases + "/l", "", "", false},
		{"a new event", "POST", events, `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`, "", true},
		{"an event again", "PATCH", events + "/e", `{"count":2}`, merge, true},
		{"an event's end", "DELETE", events + "/e", "", "", true},
		{"anything else", "POST", configMaps, `{"metadata":{"name":"c"}}`, "", false},
	} {
		header := tt.header
		if header == "" {
			header = "Content-Type: application/json"
		}
		if strings.Contains(tt.body, "NOW") {
			tt.body = strings.Replace(tt.body, "NOW", fmt.Sprint(f.store.Revision()), 1) // nothing else was written since
		}
		rec.last = store.Write{}
		a := f.do(tt.method, tt.path, tt.body, header)
		if a.code != http.StatusOK && a.code != http.StatusCreated || rec.last.Key == "" {
			t.Fatalf("%s: %d %s, wrote %q", tt.what, a.code, a.body, rec.last.Key)
		}
		if rec.last.Volatile != tt.want {
			t.Errorf("%s: volatile is %v, want %v", tt.what, rec.last.Volatile, tt.want)
		}
	}
}
