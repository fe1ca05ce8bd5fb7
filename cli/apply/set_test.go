package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/cli/apply"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

// A shipyard is an API server that serves boats as soon as their definition is
// established, and publishes the kind in its discovery somewhat later.
type shipyard struct {
	client.Interface // what is not below is not asked for

	written []string
	crd     *unstructured.Unstructured // once it is applied
	never   bool                       // the definition is never established
	asked   int                        // how often discovery was asked for boats since
}

func (s *shipyard) established() bool {
	conditions, _, _ := unstructured.NestedSlice(s.crd.Object, "status", "conditions")
	return len(conditions) > 0
}

func (s *shipyard) Do(_ context.Context, r client.RawRequest) (*http.Response, error) {
	doc := `{}`
	switch r.Path {
	case "/api/v1":
		doc = `{"resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true},{"name":"namespaces","kind":"Namespace"}]}`
	case "/apis":
		doc = `{"kind":"APIGroupList","groups":[]}`
	case "/apis/apiextensions.k8s.io/v1":
		doc = `{"resources":[{"name":"customresourcedefinitions","kind":"CustomResourceDefinition"}]}`
	case "/apis/sea/v1":
		if s.crd != nil && s.established() {
			s.asked++
		}
		if s.asked < 3 {
			return nil, apierrors.NewNotFound(schema.GroupResource{}, r.Path)
		}
		doc = `{"resources":[{"name":"boats","kind":"Boat","namespaced":true}]}`
	}
	return &http.Response{Body: io.NopCloser(strings.NewReader(doc))}, nil
}

func (s *shipyard) Patch(_ context.Context, gvr schema.GroupVersionResource, namespace, name string, _ types.PatchType, patch []byte, _ metav1.PatchOptions, _ string) (runtime.Object, error) {
	s.written = append(s.written, strings.Trim(namespace+"/"+gvr.Resource+"/"+name, "/"))
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(patch); err != nil {
		return nil, err
	}
	if gvr.Resource == "customresourcedefinitions" {
		u.SetUID("crd")
		u.SetResourceVersion("1")
		s.crd = u
	}
	return u, nil
}

func (s *shipyard) List(_ context.Context, gvr schema.GroupVersionResource, _ string, _ metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	meta := metav1.ListMeta{ResourceVersion: "1"}
	if gvr.Resource != "customresourcedefinitions" || s.crd == nil {
		return nil, meta, nil
	}
	return []runtime.Object{s.crd}, meta, nil
}

func (s *shipyard) Watch(ctx context.Context, gvr schema.GroupVersionResource, _ string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		if opts.SendInitialEvents != nil {
			yield(watch.Event{}, apierrors.NewBadRequest("sendInitialEvents is not served"))
			return
		}
		if gvr.Resource == "customresourcedefinitions" && s.crd != nil && !s.never && !s.established() {
			done := s.crd.DeepCopy()
			done.SetResourceVersion("2")
			_ = unstructured.SetNestedSlice(done.Object, []any{map[string]any{"type": "Established", "status": "True"}}, "status", "conditions")
			s.crd = done
			if !yield(watch.Event{Type: watch.Modified, Object: done}, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(watch.Event{}, context.Cause(ctx))
	}
}

const boats = `
apiVersion: sea/v1
kind: Boat
metadata: {name: sampan}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: chart, namespace: harbour}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.sea}
spec: {group: sea, names: {kind: Boat, plural: boats}, scope: Namespaced, versions: [{name: v1, served: true}, {name: v2, served: false}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: harbour}
---
apiVersion: sea/v2
kind: Boat
metadata: {name: liner}
`

// play applies objects and returns a line per error.
func (s *shipyard) play(t *testing.T, o apply.Options, in string) []string {
	t.Helper()
	o.Client, o.Mapper = s, resource.NewMapper(s)
	a, err := apply.New(o)
	if err != nil {
		t.Fatal(err)
	}
	set := &apply.Set{Applier: a, Request: resource.Request{Files: []string{"-"}, In: strings.NewReader(in), Namespace: "default"}}
	var errs []string
	note := func(err error) {
		if err != nil {
			errs = append(errs, err.Error())
		}
	}
	for info, err := range resource.Stream(t.Context(), o.Mapper, set.Request) {
		note(set.Add(info, err))
	}
	note(set.Prepare())
	for _, err := range set.Apply(t.Context()) {
		note(err)
	}
	return errs
}

func TestObjectsComeAfterTheirKind(t *testing.T) {
	s := &shipyard{}
	errs := s.play(t, apply.Options{}, boats)
	if len(errs) != 1 || !strings.Contains(errs[0], `no matches for kind "Boat" in version "sea/v2"`) {
		t.Errorf("errors %q, want one about the version that is not served", errs)
	}
	if want := []string{"namespaces/harbour", "customresourcedefinitions/boats.sea", "harbour/configmaps/chart", "default/boats/sampan"}; !slices.Equal(s.written, want) {
		t.Errorf("written %q, want %q", s.written, want)
	}
}

func TestAKindThatIsNeverEstablished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shipyard{never: true}
		errs := s.play(t, apply.Options{}, boats)
		if len(errs) != 3 || !strings.HasPrefix(errs[1], "CustomResourceDefinitions are not established (timed out)") || !strings.Contains(errs[2], `no matches for kind "Boat" in version "sea/v1"`) {
			t.Errorf("errors %q", errs)
		}
		if want := []string{"namespaces/harbour", "customresourcedefinitions/boats.sea", "harbour/configmaps/chart"}; !slices.Equal(s.written, want) {
			t.Errorf("written %q, want %q: what does not need the kind is applied", s.written, want)
		}
	})
}

func TestADryRunDoesNotKnowKindsThatItDefines(t *testing.T) {
	s := &shipyard{}
	errs := s.play(t, apply.Options{DryRun: apply.OnServer}, boats)
	if len(errs) != 2 || !strings.Contains(errs[1], `kind "Boat" is defined by a CustomResourceDefinition of this set`) {
		t.Errorf("errors %q", errs)
	}
}

func TestOrderIsStable(t *testing.T) {
	var infos []resource.Info
	for _, text := range []string{
		"admissionregistration.k8s.io/ValidatingWebhookConfiguration", "sea/Boat", "batch/Job", "apps/Deployment", "/Service", "rbac.authorization.k8s.io/Role",
		"/ConfigMap", "/Secret", "/ServiceAccount", "networking.k8s.io/Ingress", "/LimitRange", "apiextensions.k8s.io/CustomResourceDefinition", "/Namespace", "/Pod",
	} {
		group, kind, _ := strings.Cut(text, "/")
		infos = append(infos, resource.Info{Mapping: resource.Mapping{GroupVersionResource: schema.GroupVersionResource{Group: group}, Kind: kind}})
	}
	apply.Order(infos)
	var got []string
	for _, i := range infos {
		got = append(got, i.Mapping.Kind)
	}
	want := "[Namespace CustomResourceDefinition LimitRange ServiceAccount ConfigMap Secret Role Service Job Deployment Pod Boat Ingress ValidatingWebhookConfiguration]"
	if fmt.Sprint(got) != want {
		t.Errorf("order %v, want %s", got, want)
	}
}

func TestMisuseOfNew(t *testing.T) {
	s := &shipyard{}
	m := resource.NewMapper(s)
	for _, o := range []apply.Options{
		{}, {Client: s}, {Client: s, Mapper: m, Way: apply.ServerSide, DryRun: apply.OnClient}, {Client: s, Mapper: m, Way: apply.ThreeWay, Force: true},
	} {
		if _, err := apply.New(o); err == nil {
			t.Errorf("New(%+v) is content", o)
		}
	}
	var none *resource.NoKindError
	if _, err := m.ByKind(t.Context(), schema.GroupVersionKind{Group: "sea", Version: "v1", Kind: "Boat"}); !errors.As(err, &none) {
		t.Errorf("ByKind = %v", err)
	}
}

func TestMergeOfKindsThatAreNotBuiltIn(t *testing.T) {
	boat := schema.GroupVersionKind{Group: "sea", Version: "v1", Kind: "Boat"}
	original := `{"apiVersion":"sea/v1","kind":"Boat","metadata":{"name":"a"},"spec":{"crew":["x"],"old":1}}`
	wanted := `{"apiVersion":"sea/v1","kind":"Boat","metadata":{"name":"a"},"spec":{"crew":["x","y"]}}`
	live := `{"apiVersion":"sea/v1","kind":"Boat","metadata":{"name":"a"},"spec":{"crew":["x","z"],"old":1,"their":2}}`
	p, err := apply.Merge(boat, []byte(original), []byte(wanted), []byte(live))
	if err != nil || p.Type != types.MergePatchType || string(p.Body) != `{"spec":{"crew":["x","y"],"old":null}}` {
		t.Errorf("Merge = %s %s, %v", p.Type, p.Body, err)
	}
	if p, err = apply.Merge(boat, []byte(wanted), []byte(wanted), []byte(wanted)); err != nil || !p.Empty() {
		t.Errorf("nothing to do is %s, %v", p.Body, err)
	}
}
