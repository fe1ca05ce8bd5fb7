package definitions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/definitions"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

var (
	crds = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	v1   = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	v2   = schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}
)

// A server serves custom resources.
type server struct {
	*apiserver.Local
	t       testing.TB
	handler http.Handler
	kinds   *catalog.Catalog
}

// open returns a server with a follower that runs. The hook answers conversions.
func open(t testing.TB, hook definitions.Webhook) *server {
	t.Helper()
	var kinds *catalog.Catalog
	s := apiservertest.Open(t, func(o *apiserver.Options) { kinds = o.Catalog })
	f := definitions.New(definitions.Options{
		Catalog: kinds,
		Webhook: func(*apiextensionsv1.WebhookClientConfig) (definitions.Webhook, error) {
			if hook == nil {
				return nil, errors.New("no webhook")
			}
			return hook, nil
		},
	})
	admin := s.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}})
	f.Use(admin, s.Instances())
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) { _ = f.Run(ctx) })
	g.Go(func(ctx context.Context) { _ = f.Judge(ctx) })
	t.Cleanup(g.Stop)
	<-f.Ready()
	return &server{admin, t, s.HandlerAs(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}}), kinds}
}

// widgets is a definition in the versions v1 and v2, of which one is stored.
func widgets(stored string, change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
		},
	}
	keep := true
	for _, name := range []string{"v1", "v2"} {
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: name == stored,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}},
		})
	}
	if change != nil {
		change(d)
	}
	return d
}

func converted(d *apiextensionsv1.CustomResourceDefinition) {
	url := "https://localhost/convert"
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url}, ConversionReviewVersions: []string{"v1"}},
	}
}

// define creates a definition, and returns when it is established.
func (s *server) define(d *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	if _, err := s.Create(s.t.Context(), crds, "", "", d, metav1.CreateOptions{}, ""); err != nil {
		s.t.Fatal(err)
	}
	s.until(d.Name, func(d *apiextensionsv1.CustomResourceDefinition) bool {
		return d != nil && is(d, apiextensionsv1.Established)
	})
}

func is(d *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == kind {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// until waits for a state of a definition; it is nil when it is gone.
func (s *server) until(name string, holds func(*apiextensionsv1.CustomResourceDefinition) bool) {
	s.t.Helper()
	for ev, err := range s.Watch(s.t.Context(), crds, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name}) {
		if err != nil {
			s.t.Fatal(err)
		}
		d, _ := ev.Object.(*apiextensionsv1.CustomResourceDefinition)
		if ev.Type == watch.Deleted {
			d = nil
		}
		if holds(d) {
			return
		}
	}
}

// gone waits until there is no such definition.
func (s *server) gone(name string) {
	s.t.Helper()
	objs, meta, err := s.List(s.t.Context(), crds, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(objs) == 0 {
		return
	}
	for ev, err := range s.Watch(s.t.Context(), crds, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: meta.ResourceVersion}) {
		if err != nil {
			s.t.Fatal(err)
		}
		if ev.Type == watch.Deleted {
			return
		}
	}
}

// change changes a definition, and returns when the catalog has the change.
func (s *server) change(name string, change func(*apiextensionsv1.CustomResourceDefinition)) {
	s.t.Helper()
	now := s.kinds.Snapshot()
	for { // the server writes conditions meanwhile
		obj, err := s.Get(s.t.Context(), crds, "", name, "")
		if err != nil {
			s.t.Fatal(err)
		}
		d := obj.(*apiextensionsv1.CustomResourceDefinition).DeepCopy()
		change(d)
		if _, err = s.Update(s.t.Context(), crds, "", name, d, metav1.UpdateOptions{}, ""); err == nil {
			break
		}
		if !apierrors.IsConflict(err) {
			s.t.Fatal(err)
		}
	}
	<-now.Replaced()
}

func widget(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": map[string]any{"size": int64(1)},
	}}
}

func (s *server) create(gvr schema.GroupVersionResource, names ...string) {
	s.t.Helper()
	for _, name := range names {
		if _, err := s.Create(s.t.Context(), gvr, "default", "", widget(gvr, name), metav1.CreateOptions{}, ""); err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestDefinitionIsServedWhenEstablished(t *testing.T) {
	s := open(t, nil)
	s.define(widgets("v1", nil))
	s.create(v1, "a")
	got, err := s.Get(t.Context(), v2, "default", "a", "")
	if err != nil {
		t.Fatal(err)
	}
	if u := got.(*unstructured.Unstructured); u.GetAPIVersion() != "example.com/v2" || u.GetGeneration() != 1 || u.GetResourceVersion() == "" {
		t.Errorf("got %v", u.Object)
	}
	s.change("widgets.example.com", func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[1].Served = false })
	if _, err := s.Get(t.Context(), v2, "default", "a", ""); !apierrors.IsNotFound(err) {
		t.Errorf("a version that is not served: %v", err)
	}
}

func TestPatchesOfCustomResources(t *testing.T) {
	s := open(t, nil)
	s.define(widgets("v1", nil))
	s.create(v1, "a")
	tests := []struct {
		kind       types.PatchType
		patch      string
		generation int64
		fault      string
	}{
		{types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`, 1, ""},
		{types.MergePatchType, `{"spec":{"size":2}}`, 2, ""},
		{types.MergePatchType, `{"spec":{"size":2}}`, 2, ""},
		{types.JSONPatchType, `[{"op":"add","path":"/spec/more","value":{"x":[1,2.5,null]}}]`, 3, ""},
		{types.StrategicMergePatchType, `{"spec":{"size":3}}`, 0, "accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"},
		{types.MergePatchType, `{"metadata":{"name":"b"}}`, 0, "does not match the name on the URL"},
		{types.MergePatchType, `{"kind":"Gadget"}`, 0, "must be Widget"},
		{types.MergePatchType, `{"apiVersion":"example.com/v2"}`, 0, "does not match the expected API version"},
	}
	for _, tt := range tests {
		t.Run(tt.patch, func(t *testing.T) {
			got, err := s.Patch(t.Context(), v1, "default", "a", tt.kind, []byte(tt.patch), metav1.PatchOptions{}, "")
			switch {
			case tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)):
				t.Errorf("error %v, want %q", err, tt.fault)
			case tt.fault == "" && err != nil:
				t.Error(err)
			case tt.fault == "" && got.(*unstructured.Unstructured).GetGeneration() != tt.generation:
				t.Errorf("generation %d, want %d", got.(*unstructured.Unstructured).GetGeneration(), tt.generation)
			}
		})
	}
}

// A hook is a conversion webhook.
type hook struct {
	mu    sync.Mutex
	calls []int                       // objects of each
	spoil func(map[string]any) []byte // makes an answer of a review; nil: the right one
}

func (h *hook) Close() {}

func (h *hook) Call(ctx context.Context, review []byte, _ int64) ([]byte, error) {
	var r struct {
		metav1.TypeMeta
		Request struct {
			UID               string
			DesiredAPIVersion string
			Objects           []map[string]any
		}
	}
	if err := json.Unmarshal(review, &r); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, len(r.Request.Objects))
	for _, obj := range r.Request.Objects {
		obj["apiVersion"] = r.Request.DesiredAPIVersion
		obj["converted"] = true
	}
	answer := map[string]any{"apiVersion": r.APIVersion, "kind": r.Kind, "response": map[string]any{
		"uid": r.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": r.Request.Objects,
	}}
	if h.spoil != nil {
		return h.spoil(answer), nil
	}
	return json.Marshal(answer)
}

func (h *hook) take() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

func TestPatchesOfScale(t *testing.T) {
	s := open(t, nil)
	s.define(widgets("v1", func(d *apiextensionsv1.CustomResourceDefinition) {
		for i := range d.Spec.Versions {
			d.Spec.Versions[i].Subresources = &apiextensionsv1.CustomResourceSubresources{
				Scale: &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
			}
		}
	}))
	s.create(v1, "a")
	if _, err := s.Get(t.Context(), v1, "default", "a", "scale"); err == nil || !strings.Contains(err.Error(), `the spec replicas field ".spec.replicas" does not exist`) {
		t.Errorf("reading the scale of an object without replicas: %v", err)
	}
	for _, step := range []struct {
		patch, fault string
		replicas     int32
	}{
		{patch: `{"metadata":{"annotations":{"a":"b"}}}`, fault: `the spec replicas field ".spec.replicas" cannot be empty`},
		{patch: `{"spec":{"replicas":3}}`, replicas: 3},
		{patch: `{"metadata":{"annotations":{"a":"b"}}}`, replicas: 3},
	} {
		got, err := s.Patch(t.Context(), v1, "default", "a", types.MergePatchType, []byte(step.patch), metav1.PatchOptions{}, "scale")
		if step.fault != "" {
			if err == nil || err.Error() != step.fault {
				t.Errorf("patch %s: error %v, want %q", step.patch, err, step.fault)
			}
			continue
		}
		if err != nil {
			t.Fatalf("patch %s: %v", step.patch, err)
		}
		if n := got.(*autoscalingv1.Scale).Spec.Replicas; n != step.replicas {
			t.Errorf("patch %s: %d replicas, want %d", step.patch, n, step.replicas)
		}
	}
}

func TestListsAreConvertedTogether(t *testing.T) {
	h := &hook{}
	s := open(t, h)
	s.define(widgets("v1", converted))
	s.create(v1, "a", "b", "c")
	if calls := h.take(); len(calls) > 0 {
		t.Errorf("calls %v for the stored version", calls)
	}
	s.change("widgets.example.com", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = false, true
	})
	for _, want := range []string{"[3]", "[]"} { // what was converted is remembered
		objs, _, err := s.List(t.Context(), v2, "default", metav1.ListOptions{})
		if err != nil || len(objs) != 3 {
			t.Fatalf("%d objects, %v", len(objs), err)
		}
		if u := objs[0].(*unstructured.Unstructured); u.GetAPIVersion() != "example.com/v2" || u.Object["converted"] != true {
			t.Errorf("got %v", u.Object)
		}
		if got := fmt.Sprint(h.take()); got != want {
			t.Errorf("calls with %s objects, want %s", got, want)
		}
	}
	if objs, _, err := s.List(t.Context(), v1, "default", metav1.ListOptions{}); err != nil || len(objs) != 3 || len(h.take()) > 0 {
		t.Errorf("in the version in which they are stored: %d objects, %v", len(objs), err)
	}
	// A write stores the object in the new version.
	if _, err := s.Patch(t.Context(), v2, "default", "a", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	h.take()
	if _, _, err := s.List(t.Context(), v1, "default", metav1.ListOptions{}); err != nil || fmt.Sprint(h.take()) != "[1]" {
		t.Errorf("objects in both versions: %v", err)
	}
}

func TestBadConversions(t *testing.T) {
	response := func(change func(r map[string]any)) func(map[string]any) []byte {
		return func(answer map[string]any) []byte {
			change(answer["response"].(map[string]any))
			b, _ := json.Marshal(answer)
			return b
		}
	}
	object := func(change func(o map[string]any)) func(map[string]any) []byte {
		return response(func(r map[string]any) { change(r["convertedObjects"].([]map[string]any)[0]) })
	}
	tests := map[string]struct {
		spoil func(map[string]any) []byte
		fault string
	}{
		"garbage":  {func(map[string]any) []byte { return []byte("garbage") }, "conversion webhook for example.com/v1, Kind=Widget failed: invalid character"},
		"nothing":  {func(map[string]any) []byte { return []byte("{}") }, "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind="},
		"no UID":   {response(func(r map[string]any) { r["uid"] = "x" }), "failed: expected response.uid="},
		"refusal":  {response(func(r map[string]any) { r["result"] = map[string]any{"status": "Failure", "message": "not today"} }), "failed: not today"},
		"no count": {response(func(r map[string]any) { r["convertedObjects"] = []any{} }), "returned 0 objects, expected 1"},
		"null":     {response(func(r map[string]any) { r["convertedObjects"] = []any{nil} }), "returned invalid object: invalid groupVersion"},
		"name":     {object(func(o map[string]any) { o["metadata"].(map[string]any)["name"] = "x" }), "returned invalid object: must have the same name: a != x"},
		"uid":      {object(func(o map[string]any) { o["metadata"].(map[string]any)["uid"] = "x" }), "must have the same UID"},
		"version":  {object(func(o map[string]any) { o["apiVersion"] = "example.com/v1" }), "invalid groupVersion (expected example.com/v2, received example.com/v1)"},
		"kind":     {object(func(o map[string]any) { o["kind"] = "X" }), "invalid kind (expected Widget, received X)"},
		"metadata": {object(func(o map[string]any) { delete(o, "metadata") }), "missing metadata in converted object"},
		"labels":   {object(func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"a": 1} }), "metadata.labels[a] must be a string, but is int64 in converted object"},
		"annotations": {object(func(o map[string]any) {
			o["metadata"].(map[string]any)["annotations"] = map[string]any{"a b": "x"}
		}), "metadata.annotation: Invalid value: \"a b\""},
	}
	h := &hook{}
	s := open(t, h)
	s.define(widgets("v1", converted))
	s.create(v1, "a")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h.spoil = tt.spoil
			_, err := s.Get(t.Context(), v2, "default", "a", "")
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("error %v, want %q", err, tt.fault)
			}
			if _, err := s.Create(t.Context(), v2, "default", "", widget(v2, "a"), metav1.CreateOptions{}, ""); err == nil || apierrors.IsBadRequest(err) {
				t.Errorf("creation: %v, want a fault of the server", err)
			}
			for _, err := range s.Watch(t.Context(), v2, "default", metav1.ListOptions{}) {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("watch: %v, want %q", err, tt.fault)
				}
				break
			}
		})
	}
	h.spoil = nil
	if _, err := s.Get(t.Context(), v2, "default", "a", ""); err != nil {
		t.Errorf("after all that: %v", err)
	}
	h.spoil = func(map[string]any) []byte { return nil }
	if err := s.Delete(t.Context(), v1, "default", "a", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deletion without the webhook: %v", err)
	}
}

func TestWatchesEndWithTheDefinition(t *testing.T) {
	s := open(t, nil)
	s.define(widgets("v1", nil))
	s.create(v1, "a")
	began := make(chan struct{})
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	var events []string
	g.Go(func(ctx context.Context) {
		for ev, err := range s.Watch(ctx, v1, "default", metav1.ListOptions{}) {
			if err != nil {
				events = append(events, "end")
				return
			}
			if events = append(events, string(ev.Type)); len(events) == 1 {
				close(began)
			}
		}
	})
	<-began
	s.change("widgets.example.com", func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Names.ShortNames = []string{"w"} })
	g.Wait()
	if got := fmt.Sprint(events); got != "[ADDED end]" {
		t.Errorf("events %s", got)
	}
	if objs, _, err := s.List(t.Context(), v1, "default", metav1.ListOptions{}); err != nil || len(objs) != 1 {
		t.Errorf("%d objects, %v", len(objs), err)
	}
}

func TestDeletionWhileObjectsAreCreated(t *testing.T) {
	s := open(t, nil)
	s.define(widgets("v1", nil))
	s.create(v1, "first")
	g := run.NewGroup(t.Context(), 0)
	for n := range 4 {
		g.Go(func(ctx context.Context) {
			for i := 0; ; i++ {
				_, err := s.Create(ctx, v1, "default", "", widget(v1, fmt.Sprintf("w-%d-%d", n, i)), metav1.CreateOptions{}, "")
				switch {
				case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
					return
				case err != nil:
					t.Error(err)
					return
				}
			}
		})
	}
	if err := s.Delete(t.Context(), crds, "", "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.gone("widgets.example.com")
	g.Wait()
	s.define(widgets("v1", nil))
	if objs, _, err := s.List(t.Context(), v1, "", metav1.ListOptions{}); err != nil || len(objs) > 0 {
		t.Errorf("%d objects of the definition before, %v", len(objs), err)
	}
}

// A conversion webhook that is gone must not keep a definition forever: another conversion lets its objects go.
func TestConversionChangesDuringDeletion(t *testing.T) {
	h := &hook{}
	s := open(t, h)
	s.define(widgets("v1", converted))
	obj := widget(v1, "a")
	obj.SetFinalizers([]string{"example.com/kept"})
	if _, err := s.Create(t.Context(), v1, "default", "", obj, metav1.CreateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	h.spoil = func(map[string]any) []byte { return nil }
	s.change("widgets.example.com", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = false, true
	})
	release := func() error {
		got, err := s.Get(t.Context(), v1, "default", "a", "")
		if err != nil {
			return err
		}
		obj := got.(*unstructured.Unstructured).DeepCopy()
		obj.SetFinalizers(nil)
		_, err = s.Update(t.Context(), v1, "default", "a", obj, metav1.UpdateOptions{}, "")
		return err
	}
	if err := s.Delete(t.Context(), crds, "", "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until("widgets.example.com", func(d *apiextensionsv1.CustomResourceDefinition) bool {
		return is(d, apiextensionsv1.Terminating)
	})
	if err := release(); err == nil {
		t.Error("an object was stored without its conversion")
	}
	s.change("widgets.example.com", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	for { // the change is noted, and then served
		now := s.kinds.Snapshot()
		err := release()
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		select {
		case <-now.Replaced():
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
	if _, err := s.Create(t.Context(), v1, "default", "", widget(v1, "b"), metav1.CreateOptions{}, ""); err == nil {
		t.Error("an object was created in a definition that is being deleted")
	}
	s.gone("widgets.example.com")
}

// The status of a definition of the largest size can be written.
func TestLargestDefinitionIsEstablished(t *testing.T) {
	s := open(t, nil)
	large := widgets("v1", nil)
	large.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = strings.Repeat("d", 3<<20-2_000)
	s.define(large)
	if err := s.Delete(t.Context(), crds, "", large.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until(large.Name, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d == nil })
}

// A definition whose status is too large to be written keeps no other one from being judged, and can be deleted.
func TestDefinitionWithoutRoomForStatus(t *testing.T) {
	s := open(t, nil)
	large := widgets("v1", nil)
	for n := range 150_000 {
		large.Spec.Names.Categories = append(large.Spec.Names.Categories, fmt.Sprintf("category-%d", n))
	}
	if _, err := s.Create(t.Context(), crds, "", "", large, metav1.CreateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	s.define(widgets("v1", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Name, d.Spec.Group = "widgets.example.org", "example.org"
	}))
	s.until(large.Name, func(d *apiextensionsv1.CustomResourceDefinition) bool {
		if is(d, apiextensionsv1.Established) {
			t.Error("it is established: the test needs a larger one")
		}
		return true
	})
	if err := s.Delete(t.Context(), crds, "", large.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until(large.Name, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d == nil })
}
