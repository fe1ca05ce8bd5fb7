package catalog_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
)

func boats() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Resource:         "configmaps",
		Singular:         "configmap",
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.ConfigMap{} },
		NewList:          func() runtime.Object { return &corev1.ConfigMapList{} },
	}
}

func TestNewRefusesIncompleteOrDuplicateKinds(t *testing.T) {
	if _, err := catalog.New([]*catalog.Kind{boats(), boats()}); err == nil || !strings.Contains(err.Error(), "duplicate") {
		t.Errorf("New(twice the same) = %v", err)
	}
	for name, spoil := range map[string]func(*catalog.Kind){
		"resource": func(k *catalog.Kind) { k.Resource = "" },
		"singular": func(k *catalog.Kind) { k.Singular = "" },
		"version":  func(k *catalog.Kind) { k.Version = "" },
		"new":      func(k *catalog.Kind) { k.New = nil },
		"new list": func(k *catalog.Kind) { k.NewList = nil },
	} {
		k := boats()
		spoil(k)
		if _, err := catalog.New([]*catalog.Kind{k}); err == nil {
			t.Errorf("New without %s = nil", name)
		}
	}
}

func TestACatalogFindsItsKinds(t *testing.T) {
	k := boats()
	c, err := catalog.New([]*catalog.Kind{k})
	if err != nil {
		t.Fatal(err)
	}
	if c.Resource(k.GVR()) != k || c.Kind(k.GroupVersionKind) != k || len(c.Kinds()) != 1 {
		t.Errorf("the kind is not found")
	}
	if obj, err := c.Scheme().New(k.GroupVersion().WithKind("ConfigMapList")); err != nil {
		t.Errorf("the scheme has no list: %v, %v", obj, err)
	}
	if k.Subresource("status") != nil {
		t.Errorf("a subresource is found that is not there")
	}
}

func TestKeys(t *testing.T) {
	k := boats()
	if got := k.Key("default", "a"); got != "configmaps/default/a" {
		t.Errorf("Key = %q", got)
	}
	k.Group, k.Namespaced = "boats.example.com", false
	if got := k.Key("default", "a"); got != "configmaps.boats.example.com/a" {
		t.Errorf("Key of a cluster kind = %q", got)
	}
	if got := k.Prefix(""); got != "configmaps.boats.example.com/" {
		t.Errorf("Prefix = %q", got)
	}
}

func TestValidateMetaOfNewObjects(t *testing.T) {
	tests := []struct {
		name   string
		change func(k *catalog.Kind, m *metav1.ObjectMeta)
		want   []string // fields and kinds of fault
	}{
		{"nothing wrong", func(*catalog.Kind, *metav1.ObjectMeta) {}, nil},
		{"no name", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.Name = "" }, []string{"metadata.name: Required value"}},
		{"name", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.Name = "A" }, []string{"metadata.name: Invalid value"}},
		{"name that is no part of a path", func(k *catalog.Kind, m *metav1.ObjectMeta) {
			k.ValidateName = func(string, bool) []string { return nil }
			m.Name = ".."
		}, []string{"metadata.name: Invalid value"}},
		{"name by the kind's own rule", func(k *catalog.Kind, m *metav1.ObjectMeta) {
			k.ValidateName = apivalidation.NameIsDNSLabel
			m.Name = "a.b"
		}, []string{"metadata.name: Invalid value"}},
		{"generateName with a dash", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.GenerateName = "a-" }, nil},
		{"generateName", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.GenerateName = "-" }, []string{"metadata.generateName: Invalid value"}},
		{"no namespace", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.Namespace = "" }, []string{"metadata.namespace: Required value"}},
		{"namespace", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.Namespace = "a.b" }, []string{"metadata.namespace: Invalid value"}},
		{"namespace of a cluster kind", func(k *catalog.Kind, _ *metav1.ObjectMeta) { k.Namespaced = false }, []string{"metadata.namespace: Forbidden"}},
		{"labels", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b c"} }, []string{"metadata.labels: Invalid value"}},
		{"annotation key", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.Annotations = map[string]string{"a b": ""} }, []string{"metadata.annotations: Invalid value"}},
		{"annotations that are too big", func(_ *catalog.Kind, m *metav1.ObjectMeta) {
			m.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)}
		}, []string{"metadata.annotations: Too long"}},
		{"owner", func(_ *catalog.Kind, m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1"}}
		}, []string{"metadata.ownerReferences[0].kind: Required value", "metadata.ownerReferences[0].name: Required value", "metadata.ownerReferences[0].uid: Required value"}},
		{"two controllers", func(_ *catalog.Kind, m *metav1.ObjectMeta) {
			o := metav1.OwnerReference{APIVersion: "v1", Kind: "A", Name: "a", UID: "a", Controller: new(true)}
			m.OwnerReferences = []metav1.OwnerReference{o, o}
		}, []string{"metadata.ownerReferences: Invalid value"}},
		{"finalizer", func(_ *catalog.Kind, m *metav1.ObjectMeta) { m.Finalizers = []string{"a.io/a b"} }, []string{"metadata.finalizers: Invalid value"}},
		{"finalizer of nobody", func(_ *catalog.Kind, m *metav1.ObjectMeta) {
			m.Finalizers = []string{"kubernetes", "a.io/a", "mine"}
		}, []string{"metadata.finalizers[2]: Invalid value"}},
		{"finalizers that contradict each other", func(_ *catalog.Kind, m *metav1.ObjectMeta) {
			m.Finalizers = []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
		}, []string{"metadata.finalizers: Invalid value"}},
		{"everything at once", func(_ *catalog.Kind, m *metav1.ObjectMeta) {
			m.Name, m.Namespace, m.Labels = "", "", map[string]string{"": ""}
		}, []string{"metadata.labels: Invalid value", "metadata.labels: Invalid value", "metadata.name: Required value", "metadata.namespace: Required value"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, obj := boats(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
			tt.change(k, &obj.ObjectMeta)
			check(t, k, obj, nil, tt.want)
		})
	}
}

func TestValidateMetaOfUpdates(t *testing.T) {
	was := metav1.ObjectMeta{
		Name: "a", Namespace: "default", UID: "u", ResourceVersion: "5", Generation: 3,
		CreationTimestamp: metav1.Unix(1, 0), Finalizers: []string{"example.com/a"},
	}
	tests := []struct {
		name     string
		deleting bool
		change   func(m *metav1.ObjectMeta)
		want     []string
	}{
		{"nothing changes", false, func(*metav1.ObjectMeta) {}, nil},
		{"what may change", false, func(m *metav1.ObjectMeta) {
			m.Labels, m.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
			m.Finalizers = append(m.Finalizers, "example.com/b")
			m.Generation++
		}, nil},
		{"what may not", false, func(m *metav1.ObjectMeta) {
			m.Name, m.Namespace, m.UID, m.CreationTimestamp = "b", "b", "b", metav1.Unix(2, 0)
			m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64(1))
		}, []string{
			"metadata.creationTimestamp: Invalid value", "metadata.deletionGracePeriodSeconds: Invalid value", "metadata.deletionTimestamp: Invalid value",
			"metadata.name: Invalid value", "metadata.namespace: Invalid value", "metadata.uid: Invalid value",
		}},
		{"generation goes back", false, func(m *metav1.ObjectMeta) { m.Generation-- }, []string{"metadata.generation: Invalid value"}},
		{"no version", false, func(m *metav1.ObjectMeta) { m.ResourceVersion = "" }, []string{"metadata.resourceVersion: Invalid value"}},
		{"finalizer", false, func(m *metav1.ObjectMeta) { m.Finalizers = []string{"a.io/a b"} }, []string{"metadata.finalizers: Invalid value"}},
		{"finalizer of nobody", false, func(m *metav1.ObjectMeta) { m.Finalizers = []string{"mine"} }, []string{"metadata.finalizers[0]: Invalid value"}},
		{"a finalizer goes while it is being deleted", true, func(m *metav1.ObjectMeta) { m.Finalizers = nil }, nil},
		{"a finalizer comes while it is being deleted", true, func(m *metav1.ObjectMeta) {
			m.Finalizers = append(m.Finalizers, "example.com/b")
		}, []string{"metadata.finalizers: Forbidden"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			old := &corev1.ConfigMap{ObjectMeta: *was.DeepCopy()}
			if tt.deleting {
				old.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
			}
			obj := old.DeepCopy()
			tt.change(&obj.ObjectMeta)
			check(t, boats(), obj, old, tt.want)
		})
	}
}

func check(t *testing.T, k *catalog.Kind, obj, old catalog.Object, want []string) {
	t.Helper()
	var got []string
	for _, err := range catalog.ValidateMeta(k, obj, old) {
		got = append(got, err.Field+": "+err.Type.String())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("ValidateMeta:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTypedFunctionsGetNilForNoOldObject(t *testing.T) {
	prepare := catalog.Prepare(func(_, old *corev1.ConfigMap) {
		if old != nil {
			t.Errorf("old = %v, want nil", old)
		}
	})
	prepare(&corev1.ConfigMap{}, nil)
}

func TestSince(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, tt := range []struct {
		ago  time.Duration
		want string
	}{{0, "0s"}, {90 * time.Second, "90s"}, {5*time.Minute + 3*time.Second, "5m3s"}, {49 * time.Hour, "2d1h"}, {400 * 24 * time.Hour, "400d"}} {
		if got := catalog.Since(now.Add(-tt.ago), now); got != tt.want {
			t.Errorf("Since(%v) = %q, want %q", tt.ago, got, tt.want)
		}
	}
	if got := catalog.Since(time.Time{}, now); got != catalog.Unknown {
		t.Errorf("Since(never) = %q", got)
	}
}
