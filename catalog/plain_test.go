package catalog

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
)

// TestPlainNamesBreakNoRule has names of all sorts, good and nearly good, and asks the
// rules of Kubernetes about everything that is called plain: of names they must say
// nothing, and of the rest the same.
func TestPlainNamesBreakNoRule(t *testing.T) {
	good := rapid.StringMatching(`[a-z0-9]{1,4}(-[a-z0-9]{1,4}){0,2}`)
	nearly := rapid.OneOf(good, rapid.StringMatching(`[a-z0-9]{1,3}([-._][a-zA-Z0-9]{1,3}){0,2}`), rapid.StringMatching(`[a-zA-Z0-9./_ä-]{0,5}`),
		rapid.StringMatching(`[a-z0-9.-]{60,66}`), rapid.StringMatching(`[a-z0-9.]{250,256}`))
	plain, other := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		kind := &Kind{Namespaced: rapid.Bool().Draw(t, "namespaced")}
		text, namespace := nearly, rapid.OneOf(rapid.Just(""), rapid.Just("default"), nearly)
		if rapid.Bool().Draw(t, "good") {
			text, namespace = good, rapid.Just("")
			if kind.Namespaced {
				namespace = good
			}
		}
		key := rapid.OneOf(text, rapid.Custom(func(t *rapid.T) string { return text.Draw(t, "domain") + "/" + text.Draw(t, "name") }))
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name:         text.Draw(t, "name"),
			GenerateName: rapid.OneOf(rapid.Just(""), rapid.Just("web-"), text).Draw(t, "generateName"),
			Namespace:    namespace.Draw(t, "namespace"),
			Labels:       rapid.MapOfN(key, rapid.OneOf(rapid.Just(""), text), 0, 2).Draw(t, "labels"),
			Annotations:  rapid.MapOfN(key, text, 0, 2).Draw(t, "annotations"),
			Finalizers:   rapid.SliceOfN(key, 0, 2).Draw(t, "finalizers"),
		}}
		if rapid.Bool().Draw(t, "owned") {
			obj.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: rapid.SampledFrom([]string{"", "Pod"}).Draw(t, "kind"), Name: "o", UID: "u"}}
		}
		at := field.NewPath("metadata")
		want := append(kind.checkFinalizers(obj.Finalizers, at.Child("finalizers")), validation.ValidateObjectMetaAccessor(obj, kind.Namespaced, kind.checkName, at)...)
		if diff := cmp.Diff(texts(want), texts(ValidateMeta(kind, obj, nil))); diff != "" {
			t.Fatalf("faults of %+v (-the rules +ours):\n%s", obj.ObjectMeta, diff)
		}
		if plainNames(kind, obj) {
			plain++
		} else {
			other++
		}
	})
	if plain == 0 || other == 0 {
		t.Errorf("%d were plain and %d were not: the test shows nothing", plain, other)
	}
}

// texts are sorted: the rules go over maps in any order.
func texts(errs field.ErrorList) (out []string) {
	for _, err := range errs {
		out = append(out, err.Error())
	}
	slices.Sort(out)
	return out
}

// TestTooManyAnnotationsAreNotPlain is about the one rule that is not about letters.
func TestTooManyAnnotationsAreNotPlain(t *testing.T) {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"a": string(make([]byte, validation.TotalAnnotationSizeLimitB))}}}
	if errs := ValidateMeta(&Kind{}, obj, nil); len(errs) != 1 {
		t.Errorf("faults: %v, want that the annotations are too long", errs)
	}
}

// TestPlainMetadataCostsNothing pins what the metadata of a usual pod takes.
func TestPlainMetadataCostsNothing(t *testing.T) {
	kind := &Kind{Namespaced: true}
	obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", GenerateName: "web-7d4b9-", Name: "web-7d4b9-x2x7k",
		Labels:      map[string]string{"app": "web", "app.kubernetes.io/name": "web", "pod-template-hash": "7d4b9", "empty": ""},
		Annotations: map[string]string{"example.com/note": "anything at all"},
	}}
	if got := testing.AllocsPerRun(100, func() { ValidateMeta(kind, obj, nil) }); got > 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
