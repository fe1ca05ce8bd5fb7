package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/catalog"
)

// mined makes admission panic over objects called "mine".
func mined(o *apiserver.Options) {
	o.Admission = []admission.Plugin{&watchdog{change: func(a *admission.Attributes) error {
		if a.Name == "mine" {
			panic("stepped on a mine")
		}
		return nil
	}}}
	o.MaxInFlight = 1
}

// TestAPanicEndsItsRequestAlone panics in requests over HTTP and in process, more often than
// there are slots for requests.
func TestAPanicEndsItsRequestAlone(t *testing.T) {
	f := serve(t, mined)
	for range 3 {
		f.refused(f.do("POST", configMaps, configMap("mine")), 500, metav1.StatusReasonInternalError, "see its log")
	}
	f.create(configMaps, configMap("a"))

	mine := configMap("mine")
	calls := map[string]func(*apiserver.Local) error{
		"Create": func(l *apiserver.Local) error {
			return second(l.Create(t.Context(), cmGVR, "default", "", mine, metav1.CreateOptions{}, ""))
		},
		"Update": func(l *apiserver.Local) error {
			return second(l.Update(t.Context(), cmGVR, "default", "mine", mine, metav1.UpdateOptions{}, ""))
		},
		"Patch": func(l *apiserver.Local) error {
			return second(l.Patch(t.Context(), cmGVR, "default", "mine", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}, ""))
		},
		"Delete": func(l *apiserver.Local) error {
			return l.Delete(t.Context(), cmGVR, "default", "mine", metav1.DeleteOptions{})
		},
	}
	over := false
	w := &watchdog{change: func(*admission.Attributes) error {
		if over {
			panic("stepped on a mine")
		}
		return nil
	}}
	g := serve(t, func(o *apiserver.Options) { o.Admission = []admission.Plugin{w} })
	g.create(configMaps, mine)
	over = true
	for name, call := range calls {
		if err := call(g.local); !apierrors.IsInternalError(err) {
			t.Errorf("%s in process: %v, want an internal error", name, err)
		}
	}
	over = false
	if err := calls["Patch"](g.local); err != nil {
		t.Errorf("after the panics: %v", err)
	}
}

// TestAPanicOverOneObjectLeavesAWatchAlone watches tables of pods, with a column that panics
// over one of them.
func TestAPanicOverOneObjectLeavesAWatchAlone(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) {
		c := apiservertest.Kinds(t)
		kind := c.Resource(cmGVR)
		kind.Columns = append([]catalog.Column{{
			TableColumnDefinition: metav1.TableColumnDefinition{Name: "Mine", Type: "string", Description: "panics"},
			Cell: func(obj catalog.Object, _ time.Time) any {
				if obj.GetName() == "mine" {
					panic("stepped on a mine")
				}
				return ""
			},
		}}, kind.Columns...)
		o.Catalog = c
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := f.open(ctx, http.MethodGet, configMaps+"?watch=true", nil, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	defer resp.Body.Close()
	for _, name := range []string{"a", "mine", "z"} {
		f.create(configMaps, configMap(name))
	}
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), `"name":"z"`) {
		n, err := resp.Body.Read(buf)
		seen.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := seen.String(); !strings.Contains(got, `"name":"a"`) || strings.Contains(got, `"name":"mine"`) || !strings.Contains(got, `"name":"z"`) {
		t.Errorf("watched %s", got)
	}
}
