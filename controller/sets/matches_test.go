package sets

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/controller/dependents"
)

func TestRevisionsAreDecodedOncePerChange(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "s", Generation: 1}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "a", Image: "one"}}
	of := func() recorded { return recorded{Owner: dependents.Owner{Object: set}, template: &set.Spec.Template} }
	data, err := revisionData(&set.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{UID: "r", ResourceVersion: "1"}, Data: runtime.RawExtension{Raw: data}}
	m := &matches{}
	for range 2 {
		if !m.of(of(), r) {
			t.Fatal("the revision does not record the template")
		}
		r.Data.Raw = []byte("{") // it is not read again
	}
	set.Generation = 2
	if m.of(of(), r) {
		t.Error("after a change of the set the revision was not decoded")
	}
	r.ResourceVersion, r.Data.Raw = "2", data
	if !m.of(of(), r) {
		t.Error("after a change of the revision it was not decoded")
	}
	m.forget(r)
	if len(m.known) != 0 {
		t.Errorf("%d answers are left", len(m.known))
	}
	set.Generation = 0
	m.of(of(), r)
	r.Data.Raw = []byte("{")
	if m.of(of(), r) {
		t.Error("an answer was kept for an object without generations")
	}
}
