package workload

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHandBackGivesTheTemplateToItsApplier(t *testing.T) {
	const (
		applied  = `{"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:name":{}}}}}}}`
		restored = `{"f:metadata":{"f:annotations":{"f:sampan.dev/failed":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{"f:image":{}}}}}}}`
		both     = `{"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}}}`
		scaled   = `{"f:spec":{"f:replicas":{}}}`
	)
	entry := func(manager string, how metav1.ManagedFieldsOperationType, sub, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: how, Subresource: sub, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	back := entry(rollbackManager, metav1.ManagedFieldsOperationUpdate, "", restored)
	user := func(fields string) metav1.ManagedFieldsEntry {
		return entry("sampan", metav1.ManagedFieldsOperationApply, "", fields)
	}
	status := entry("deployment-controller", metav1.ManagedFieldsOperationUpdate, "status", `{"f:status":{}}`)
	edit := entry("kubectl-edit", metav1.ManagedFieldsOperationUpdate, "", applied)
	other := entry("mesh", metav1.ManagedFieldsOperationApply, "", applied)
	scaler := entry("scaler", metav1.ManagedFieldsOperationApply, "", scaled)
	type entries = []metav1.ManagedFieldsEntry
	for name, tt := range map[string]struct{ before, after entries }{
		"no rollback":       {entries{user(applied), status}, nil},
		"not recorded":      {nil, nil},
		"one applier":       {entries{user(applied), back, status}, entries{user(both), status}},
		"of other fields":   {entries{scaler, user(applied), back}, entries{scaler, user(both)}},
		"several appliers":  {entries{user(applied), other, back}, entries{user(applied), other}},
		"none":              {entries{edit, back}, entries{edit}},
		"unreadable fields": {entries{user("{"), user(applied), back}, entries{user("{"), user(both)}},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{ManagedFields: tt.before}}
		got := handBack(d)
		if got == nil && tt.after == nil {
			continue
		}
		if got == nil || len(got.ManagedFields) != len(tt.after) || len(d.ManagedFields) != len(tt.before) {
			t.Errorf("%s: handBack = %v, want %v", name, got, tt.after)
			continue
		}
		for i, m := range got.ManagedFields {
			if want := tt.after[i]; m.Manager != want.Manager || m.FieldsV1.String() != want.FieldsV1.String() {
				t.Errorf("%s: entry %d = %v, want %v", name, i, m, want)
			}
		}
	}
}
