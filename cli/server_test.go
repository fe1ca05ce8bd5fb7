package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// A wire serves the API over HTTP as another server might: without protobuf and server-side apply,
// with impersonation, which has no effect, and with whatever a test adds under extra.
type wire struct {
	*clienttest.Server
	extra map[string]http.HandlerFunc // by path

	conflicts func() bool // whether a patch is to lose a race; nil means never
}

func newWire(t *testing.T, objs ...client.Object) *wire {
	return &wire{Server: clienttest.New(t, objs...), extra: map[string]http.HandlerFunc{}}
}

func serve(t *testing.T, objs ...client.Object) (*wire, string) {
	w := newWire(t, objs...)
	s := httptest.NewServer(w)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return w, s.URL
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if h := w.extra[r.URL.Path]; h != nil {
		h(rw, r)
		return
	}
	w.resource(rw, r)
}

func (w *wire) resource(rw http.ResponseWriter, r *http.Request) {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			delete(r.Header, name)
		}
	}
	media := r.Header.Get("Content-Type")
	switch {
	case media == runtime.ContentTypeProtobuf, r.Method == http.MethodPatch && media == string(types.ApplyPatchType):
		fail(rw, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "", "", 0, true))
	case r.Method == http.MethodPatch && w.conflicts != nil && w.conflicts():
		fail(rw, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "", nil))
	default:
		w.Handler().ServeHTTP(rw, r)
	}
}

func fail(rw http.ResponseWriter, err apierrors.APIStatus) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	answer(rw, int(status.Code), status)
}

func answer(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(v)
}
