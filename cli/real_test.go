package cli_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/client"
)

var boss = auth.User{Name: "boss", Groups: []string{"system:masters"}}

// everybodyIsBoss lets all requests in and through.
type everybodyIsBoss struct{}

func (everybodyIsBoss) Authenticate(*http.Request) (*auth.User, error) { return &boss, nil }

func (everybodyIsBoss) Authorize(context.Context, rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: true}
}

// realServer serves the API of this program, with the namespaces default and two. The
// client sees the same without HTTP.
func realServer(t *testing.T) (client.Interface, *terminal) {
	t.Helper()
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		o.Auth, o.Authorizer = everybodyIsBoss{}, everybodyIsBoss{}
		o.Admission = []admission.Plugin{admission.NewNamespaceLifecycle(operation.NewReader(o.Catalog, o.Store))}
	})
	c := s.As(boss)
	for _, name := range []string{"default", "two"} {
		if _, err := client.Namespaces.Create(t.Context(), c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return c, newTerminal(t, h.URL)
}

// file writes a file in a directory of the test and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	return write(t, t.TempDir()+"/"+name, text)
}

const mapYAML = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {a: \"1\"}\n"

func configMap(name string) string { return strings.ReplaceAll(mapYAML, "NAME", name) }
