package bootstrap_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	schemas = flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas")
	levels  = flowcontrolv1.SchemeGroupVersion.WithResource("prioritylevelconfigurations")
)

// edit changes an object as an administrator.
func edit[T interface {
	runtime.Object
	metav1.Object
}](f *fixture, gvr schema.GroupVersionResource, name string, change func(T)) {
	f.Helper()
	found, err := f.api.Get(f.Context(), gvr, "", name, "")
	if err != nil {
		f.Fatal(err)
	}
	obj := found.DeepCopyObject().(T)
	change(obj)
	if _, err := f.api.Update(f.Context(), gvr, "", name, obj, metav1.UpdateOptions{}, ""); err != nil {
		f.Fatal(err)
	}
}

// schema shows a FlowSchema: its precedence, whether it is kept up to date, and its managers by name. Their order in the object
// depends on the seconds in which they wrote.
func (s *fixture) schema(name string) string {
	s.Helper()
	found, err := s.api.Get(s.Context(), schemas, "", name, "")
	if err != nil {
		return "none"
	}
	o := found.(*flowcontrolv1.FlowSchema)
	managers := map[string]bool{}
	for _, e := range o.ManagedFields {
		managers[e.Manager] = true
	}
	return fmt.Sprintf("%d %s %s", o.Spec.MatchingPrecedence, o.Annotations[flowcontrolv1.AutoUpdateAnnotationKey], slices.Sorted(maps.Keys(managers)))
}

func TestFlowControlObjectsAreMadeAndKept(t *testing.T) {
	f := newFixture(t, "10.0.0.0/24")
	stop := f.keep("10.0.0.0/24", "10.1.0.1")
	for gvr, want := range map[schema.GroupVersionResource]int{schemas: 11, levels: 8} {
		objs, _, err := f.api.List(t.Context(), gvr, "", metav1.ListOptions{})
		if err != nil || len(objs) != want {
			t.Errorf("%d %s, %v, want %d", len(objs), gvr.Resource, err, want)
		}
	}
	const producer = "api-priority-and-fairness-config-producer-v1"
	if got := f.schema("service-accounts"); got != "9000 true ["+producer+"]" {
		t.Errorf("service-accounts: %s", got)
	}
	stop()
	// What the administrator owns stays, the rest is restored, and nothing else is written.
	edit(f, schemas, "service-accounts", func(s *flowcontrolv1.FlowSchema) {
		s.Spec.MatchingPrecedence = 8000
		s.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] = "false"
	})
	edit(f, schemas, "kube-scheduler", func(s *flowcontrolv1.FlowSchema) { s.Spec.MatchingPrecedence = 801 })
	edit(f, schemas, "system-nodes", func(s *flowcontrolv1.FlowSchema) {
		s.Spec.MatchingPrecedence = 501
		s.Annotations = nil
	})
	edit(f, schemas, "catch-all", func(s *flowcontrolv1.FlowSchema) {
		s.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "false"}
	})
	edit(f, levels, "exempt", func(l *flowcontrolv1.PriorityLevelConfiguration) {
		l.Spec.Exempt.NominalConcurrencyShares = new(int32(5))
	})
	if err := f.api.Delete(t.Context(), schemas, "", "global-default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.keep("10.0.0.0/24", "10.1.0.1")()
	for name, want := range map[string]string{
		"service-accounts": "8000 false [" + producer + " apiserver]",
		"kube-scheduler":   "800 true [" + producer + "]",
		"system-nodes":     "501 false [" + producer + " apiserver]",
		"catch-all":        "10000 true [" + producer + "]",
		"global-default":   "9900 true [" + producer + "]",
	} {
		if got := f.schema(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	found, err := f.api.Get(t.Context(), levels, "", "exempt", "")
	if err != nil || *found.(*flowcontrolv1.PriorityLevelConfiguration).Spec.Exempt.NominalConcurrencyShares != 5 {
		t.Errorf("the shares of exempt were not kept: %v, %v", found, err)
	}
	_, before, _ := f.api.List(t.Context(), schemas, "", metav1.ListOptions{})
	f.keep("10.0.0.0/24", "10.1.0.1")()
	if _, after, _ := f.api.List(t.Context(), schemas, "", metav1.ListOptions{}); before.ResourceVersion != after.ResourceVersion {
		t.Errorf("a start that changes nothing wrote: revision %s, then %s", before.ResourceVersion, after.ResourceVersion)
	}
}
