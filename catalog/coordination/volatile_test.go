package coordination_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/coordination"
)

func TestOnlyARenewalIsVolatile(t *testing.T) {
	kind := coordination.Kinds()[0]
	at := func(seconds int64) *metav1.MicroTime { return new(metav1.NewMicroTime(time.Unix(seconds, 0))) }
	entry := func(manager string, seconds int64) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "coordination.k8s.io/v1",
			Time: new(metav1.NewTime(time.Unix(seconds, 0))), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`),
		}
	}
	old := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: "leader", Namespace: "default", ResourceVersion: "7", Labels: map[string]string{"a": "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{entry("one", 1), entry("two", 2)},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("one"), LeaseDurationSeconds: new(int32(15)), AcquireTime: at(1), RenewTime: at(2), LeaseTransitions: new(int32(3)),
		},
	}
	for name, tt := range map[string]struct {
		change func(l *coordinationv1.Lease)
		want   bool
	}{
		"renewTime":           {func(l *coordinationv1.Lease) { l.Spec.RenewTime = at(9) }, true},
		"resourceVersion":     {func(l *coordinationv1.Lease) { l.ResourceVersion = "" }, true},
		"times of managers":   {func(l *coordinationv1.Lease) { l.ManagedFields[0].Time = new(metav1.NewTime(time.Unix(5, 0))) }, true},
		"order of managers":   {func(l *coordinationv1.Lease) { m := l.ManagedFields; m[0], m[1] = m[1], m[0] }, true},
		"another manager":     {func(l *coordinationv1.Lease) { l.ManagedFields[1].Manager = "three" }, false},
		"a manager less":      {func(l *coordinationv1.Lease) { l.ManagedFields = l.ManagedFields[:1] }, false},
		"a manager's fields":  {func(l *coordinationv1.Lease) { l.ManagedFields[1].FieldsV1.SetRawString(`{}`) }, false},
		"a manager twice":     {func(l *coordinationv1.Lease) { l.ManagedFields[1] = l.ManagedFields[0] }, false},
		"holderIdentity":      {func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("two") }, false},
		"no holderIdentity":   {func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }, false},
		"leaseDuration":       {func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(1)) }, false},
		"acquireTime":         {func(l *coordinationv1.Lease) { l.Spec.AcquireTime = at(9) }, false},
		"leaseTransitions":    {func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32(4)) }, false},
		"labels":              {func(l *coordinationv1.Lease) { l.Labels["a"] = "c" }, false},
		"annotations":         {func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"a": "b"} }, false},
		"deletionTimestamp":   {func(l *coordinationv1.Lease) { l.DeletionTimestamp = new(metav1.Now()) }, false},
		"finalizers":          {func(l *coordinationv1.Lease) { l.Finalizers = []string{"a.b/c"} }, false},
		"renewTime and label": {func(l *coordinationv1.Lease) { l.Spec.RenewTime, l.Labels["a"] = at(9), "c" }, false},
	} {
		l := old.DeepCopy()
		tt.change(l)
		before := l.DeepCopy()
		if got := kind.Loses(l, old); got != tt.want {
			t.Errorf("%s: volatile is %v, want %v", name, got, tt.want)
		}
		if !kind.Loses(before, l) {
			t.Errorf("%s: the lease was changed by the question", name)
		}
	}
	for name, write := range map[string][2]catalog.Object{"creation": {old, nil}, "deletion": {nil, old}} {
		if kind.Loses(write[0], write[1]) {
			t.Errorf("a %s is volatile", name)
		}
	}
}
