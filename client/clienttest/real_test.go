package clienttest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

var boss = auth.User{Name: "boss", Groups: []string{"system:masters"}}

// everybodyIsBoss is for requests over HTTP.
type everybodyIsBoss struct{}

func (everybodyIsBoss) Authenticate(*http.Request) (*auth.User, error) { return &boss, nil }

type allowed struct{}

func (allowed) Authorize(context.Context, rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: true}
}

// realServer returns the API server of this program on a store in memory, with the
// namespaces that every cluster has.
func realServer(t *testing.T) *apiserver.Server {
	t.Helper()
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		o.Auth, o.Authorizer = everybodyIsBoss{}, allowed{}
		o.Admission = []admission.Plugin{admission.NewNamespaceLifecycle(operation.NewReader(o.Catalog, o.Store))}
	})
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.Namespaces.Create(t.Context(), s.As(boss), ns); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestTheRealServerConforms(t *testing.T) {
	t.Run("in process", func(t *testing.T) {
		clienttest.Conform(t, func(t *testing.T) client.Interface { return realServer(t).As(boss) })
	})
	t.Run("over HTTP", func(t *testing.T) {
		clienttest.Conform(t, func(t *testing.T) client.Interface {
			h := httptest.NewServer(realServer(t).Handler())
			t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
			c, err := client.NewREST(&rest.Config{Host: h.URL}, client.RESTOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return c
		})
	})
}
