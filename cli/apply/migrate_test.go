package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/cli/apply"
	"github.com/sampan-io/sampan/cli/resource"
)

var configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// A tracker is an API server with one ConfigMap, which tracks field managers
// with upstream's own code.
type tracker struct {
	t      *testing.T
	fields *managedfields.FieldManager
	live   *unstructured.Unstructured
	writes []string
}

func newTracker(t *testing.T) *tracker {
	return &tracker{t: t, fields: managedfieldstest.NewFakeFieldManager(managedfields.NewDeducedTypeConverter(), configMaps)}
}

func (s *tracker) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(configMaps)
	return u
}

func (s *tracker) store(obj runtime.Object, dry []string) (runtime.Object, error) {
	u := obj.DeepCopyObject().(*unstructured.Unstructured) // it is all that this server has
	version := 0
	if s.live != nil {
		version, _ = strconv.Atoi(s.live.GetResourceVersion())
	}
	u.SetResourceVersion(strconv.Itoa(version + 1))
	u.SetUID("uid")
	if len(dry) == 0 {
		s.live = u
	}
	return u.DeepCopy(), nil
}

func (s *tracker) Get(_ context.Context, gvr schema.GroupVersionResource, _, name, _ string) (runtime.Object, error) {
	if s.live == nil {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	return s.live.DeepCopy(), nil
}

func (s *tracker) Create(_ context.Context, _ schema.GroupVersionResource, _, _ string, obj runtime.Object, opts metav1.CreateOptions, _ string) (runtime.Object, error) {
	s.writes = append(s.writes, "create")
	return s.store(s.fields.UpdateNoErrors(s.empty(), obj.DeepCopyObject(), opts.FieldManager), opts.DryRun)
}

func (s *tracker) Patch(_ context.Context, gvr schema.GroupVersionResource, _, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, _ string) (runtime.Object, error) {
	s.writes = append(s.writes, strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(string(kind), "+json"), "+yaml"), "application/"))
	if kind == types.ApplyPatchType {
		applied := s.empty()
		if err := json.Unmarshal(patch, &applied.Object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		live := s.live
		if live == nil {
			live = s.empty()
		}
		obj, err := s.fields.Apply(live.DeepCopy(), applied, opts.FieldManager, *opts.Force)
		if err != nil {
			return nil, err
		}
		return s.store(obj, opts.DryRun)
	}
	if s.live == nil {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	old, err := json.Marshal(s.live.Object)
	if err != nil {
		return nil, err
	}
	var text []byte
	if kind == types.JSONPatchType {
		p, bad := jsonpatch.DecodePatch(patch)
		if bad != nil {
			return nil, bad
		}
		text, err = p.Apply(old)
	} else {
		text, err = strategicpatch.StrategicMergePatch(old, patch, &corev1.ConfigMap{})
	}
	if err != nil {
		return nil, err
	}
	obj := s.empty()
	if err := json.Unmarshal(text, &obj.Object); err != nil {
		return nil, err
	}
	if obj.GetResourceVersion() != s.live.GetResourceVersion() {
		return nil, apierrors.NewConflict(gvr.GroupResource(), name, nil)
	}
	return s.store(s.fields.UpdateNoErrors(s.live.DeepCopy(), obj, opts.FieldManager), opts.DryRun)
}

func (s *tracker) List(context.Context, schema.GroupVersionResource, string, metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	return nil, metav1.ListMeta{}, apierrors.NewBadRequest("not served")
}

func (s *tracker) Watch(context.Context, schema.GroupVersionResource, string, metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) { yield(watch.Event{}, apierrors.NewBadRequest("not served")) }
}

func (s *tracker) Update(context.Context, schema.GroupVersionResource, string, string, runtime.Object, metav1.UpdateOptions, string) (runtime.Object, error) {
	return nil, apierrors.NewBadRequest("not served")
}

func (s *tracker) Delete(context.Context, schema.GroupVersionResource, string, string, metav1.DeleteOptions) error {
	return apierrors.NewBadRequest("not served")
}

// others has another manager write a key.
func (s *tracker) others(key, value string) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, key, value)
	if _, err := s.Patch(s.t.Context(), schema.GroupVersionResource{}, "", "", types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "others"}, ""); err != nil {
		s.t.Fatal(err)
	}
}

// said returns the data and, for each manager, which keys of it that owns.
func (s *tracker) said() string {
	data, _, _ := unstructured.NestedStringMap(s.live.Object, "data")
	var owners []string
	for _, e := range s.live.GetManagedFields() {
		var fields struct {
			Data map[string]any `json:"f:data"`
		}
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
			s.t.Fatal(err)
		}
		var keys []string
		for k := range fields.Data {
			if k, found := strings.CutPrefix(k, "f:"); found {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		owners = append(owners, fmt.Sprintf("%s(%s):%s", e.Manager, e.Operation, strings.Join(keys, "")))
	}
	slices.Sort(owners)
	annotated := ""
	if _, found := s.live.GetAnnotations()[apply.LastApplied]; found {
		annotated = " annotated"
	}
	return fmt.Sprint(data, annotated, " ", strings.Join(owners, " "))
}

// apply applies a ConfigMap with this data.
func (s *tracker) apply(o apply.Options, data map[string]any) (apply.Result, error) {
	s.t.Helper()
	o.Client, o.Mapper = s, resource.NewMapper(nil)
	a, err := apply.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "m", "namespace": "default"}, "data": data}}
	obj.SetGroupVersionKind(configMaps)
	s.writes = nil
	return a.Apply(s.t.Context(), resource.Info{
		Mapping:   resource.Mapping{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespaced: true},
		Namespace: "default", Name: "m", Object: obj, Source: "test",
	})
}

func (s *tracker) want(what, want string) {
	s.t.Helper()
	if got := s.said(); got != want {
		s.t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

type data = map[string]any

func TestServerSideApplyIsOneRequest(t *testing.T) {
	s := newTracker(t)
	for range 2 {
		r, err := s.apply(apply.Options{}, data{"a": "1", "b": "2"})
		if err != nil || r.Action != apply.ServerSideApplied || !slices.Equal(s.writes, []string{"apply-patch"}) {
			t.Fatalf("%+v, %v after %q", r, err, s.writes)
		}
	}
	s.want("made", "map[a:1 b:2] sampan(Apply):ab")
	s.others("b", "9")
	_, err := s.apply(apply.Options{}, data{"a": "2", "b": "2"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "--force-conflicts") || !strings.Contains(err.Error(), ".data.b") {
		t.Errorf("a conflict is %v", err)
	}
	if _, err := s.apply(apply.Options{Force: true}, data{"b": "2"}); err != nil {
		t.Error(err)
	}
	s.want("forced, and a left out", "map[b:2] sampan(Apply):b")
}

func TestApplyTakesOverFromCommands(t *testing.T) {
	change := func(s *tracker, manager string) {
		t.Helper()
		patch := []byte(`{"data":{"b":"9"}}`)
		if _, err := s.Patch(t.Context(), schema.GroupVersionResource{}, "", "", types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		manager string
		way     apply.Way
		taken   bool
	}{
		{"sampan", apply.Auto, true},
		{"kubectl-edit", apply.Auto, true},
		{"kubectl", apply.Auto, true},
		{"kubectl-edit", apply.ServerSide, false},
		{"kube-controller-manager", apply.Auto, false},
		{"kubectlx", apply.Auto, false},
	} {
		s := newTracker(t)
		if _, err := s.apply(apply.Options{}, data{"a": "1", "b": "2"}); err != nil {
			t.Fatal(err)
		}
		change(s, tt.manager)
		if _, err := s.apply(apply.Options{Way: tt.way}, data{"a": "1", "b": "3"}); apierrors.IsConflict(err) == tt.taken {
			t.Errorf("after %s, way %d: %v", tt.manager, tt.way, err)
		}
		if tt.taken {
			s.want("taken from "+tt.manager, "map[a:1 b:3] sampan(Apply):ab")
		}
	}
	// A client that applies files keeps its fields, whatever its name is.
	s := newTracker(t)
	for _, manager := range []string{"kubectl", ""} {
		_, err := s.apply(apply.Options{Way: apply.Auto, Manager: manager}, data{"a": "of " + manager})
		if manager == "" && !apierrors.IsConflict(err) {
			t.Errorf("after an apply of kubectl: %v", err)
		}
	}
}

func TestAnObjectMovesFromMergesToTheServer(t *testing.T) {
	for _, tt := range []struct {
		name string
		next data
	}{
		{"with the same values", data{"a": "1"}},
		{"with other values", data{"a": "5", "c": "3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTracker(t)
			merges := apply.Options{Way: apply.ThreeWay}
			for i, d := range []data{{"a": "0"}, {"a": "1", "b": "2"}} {
				r, err := s.apply(merges, d)
				if err != nil || r.Action != []apply.Action{apply.Created, apply.Configured}[i] {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			s.others("their", "x")
			s.want("merged", "map[a:1 b:2 their:x] annotated kubectl-client-side-apply(Update):ab others(Update):their")

			before := s.said()
			r, err := s.apply(apply.Options{DryRun: apply.OnServer}, tt.next)
			if err != nil {
				t.Fatal(err)
			}
			tt.next["their"] = "x"
			if got, _, _ := unstructured.NestedMap(r.Object.Object, "data"); fmt.Sprint(got) != fmt.Sprint(tt.next) {
				t.Errorf("a dry run shows %v, want %v", got, tt.next)
			}
			s.want("after a dry run", before)

			delete(tt.next, "their")
			keys := ""
			for _, k := range []string{"a", "c"} {
				if tt.next[k] != nil {
					keys += k
				}
			}
			if _, err := s.apply(apply.Options{}, tt.next); err != nil {
				t.Fatal(err)
			}
			tt.next["their"] = "x"
			s.want("moved", fmt.Sprint(tt.next)+" others(Update):their sampan(Apply):"+keys)
			if _, err := s.apply(apply.Options{}, data{"c": "4"}); err != nil || len(s.writes) != 1 {
				t.Errorf("the next apply: %v after %q", err, s.writes)
			}
			s.want("and the server removes what left the file", "map[c:4 their:x] others(Update):their sampan(Apply):c")
		})
	}
}

// An object may have been applied by merges to a server that kept no account of fields,
// and that does now.
func TestAnObjectWithoutAccountMovesToTheServer(t *testing.T) {
	for _, next := range []data{{"a": "1"}, {"a": "5"}} {
		s := newTracker(t)
		if _, err := s.apply(apply.Options{Way: apply.ThreeWay}, data{"a": "1", "b": "2"}); err != nil {
			t.Fatal(err)
		}
		s.others("default", "x")
		s.live.SetManagedFields(nil)
		if _, err := s.apply(apply.Options{}, next); err != nil {
			t.Fatal(err)
		}
		next["default"] = "x"
		s.want("moved", fmt.Sprint(next)+" before-first-apply(Update):default sampan(Apply):a")
		if _, err := s.apply(apply.Options{}, data{}); err != nil {
			t.Fatal(err)
		}
		s.want("and the server removes what left the file", "map[default:x] before-first-apply(Update):default sampan(Apply):")
	}
}

func TestAnAnnotationInTheFileIsNoField(t *testing.T) {
	s := newTracker(t)
	o := apply.Options{Client: s, Mapper: resource.NewMapper(nil)}
	a, err := apply.New(o)
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "m", "annotations": map[string]any{apply.LastApplied: "{}", "mine": "x"},
	}}}
	obj.SetGroupVersionKind(configMaps)
	info := resource.Info{Mapping: resource.Mapping{Kind: "ConfigMap", GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}, Name: "m", Object: obj}
	if _, err := a.Apply(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	if got := s.live.GetAnnotations(); len(got) != 1 || got["mine"] != "x" {
		t.Errorf("the annotations are %v", got)
	}
}
