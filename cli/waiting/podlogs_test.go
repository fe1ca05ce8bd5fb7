package waiting

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
)

func TestSeparatesStreams(t *testing.T) {
	refuse := func(errs ...*field.Error) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			s := apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, "a", errs).Status()
			s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(s.Code))
			_ = json.NewEncoder(w).Encode(s)
		}
	}
	stream := field.NewPath("stream")
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   bool
	}{
		{"one that can", refuse(field.NotSupported(stream, "Which", []string{"All", "Stderr", "Stdout"})), true},
		{"one that may not", refuse(field.Forbidden(stream, "may not be specified")), false},
		{"one that says that of something else", refuse(field.NotSupported(field.NewPath("container"), "c", []string{"d"})), false},
		{"one that has never heard of it", func(w http.ResponseWriter) { _, _ = w.Write([]byte("l")) }, false},
		{"one that fails", func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := ""
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				tt.answer(w)
			}))
			defer s.Close()
			c, err := client.NewREST(&rest.Config{Host: s.URL}, client.RESTOptions{})
			if err != nil {
				t.Fatal(err)
			}
			src := logSource{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}, container: "c"}
			if got := separatesStreams(t.Context(), c, src); got != tt.want {
				t.Errorf("separatesStreams = %v, want %v", got, tt.want)
			}
			if want := "/api/v1/namespaces/n/pods/a/log?container=c&limitBytes=1&stream=Which"; asked != want {
				t.Errorf("it was asked %s, want %s", asked, want)
			}
		})
	}
}
