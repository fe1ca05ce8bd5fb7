package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

func TestInvalidReportsFirstErrors(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	var errs field.ErrorList
	for i := range 1_000_000 {
		errs = append(errs, field.Required(field.NewPath("spec", "containers").Index(i), ""))
	}
	if got := catalog.Invalid(kind, "p", errs[:2]).ErrStatus.Message; got != `Pod "p" is invalid: [spec.containers[0]: Required value, spec.containers[1]: Required value]` {
		t.Errorf("two errors: %s", got)
	}
	got := catalog.Invalid(kind, "p", errs).ErrStatus
	if len(got.Details.Causes) != 200 || !strings.HasSuffix(got.Message, "spec.containers[199]: Required value] and 999800 more errors") {
		t.Errorf("a million errors: %d causes, %.200s", len(got.Details.Causes), got.Message)
	}
}

// Errors of elements that show the whole list made an answer of 370 MB from a body of 2 MB.
func TestInvalidShowsABoundedPart(t *testing.T) {
	size := func(owners int) int {
		list := make([]metav1.OwnerReference, owners)
		for i := range list {
			list[i].Name = fmt.Sprint("owner-with-a-name-", i)
		}
		var errs field.ErrorList
		for range owners {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "ownerReferences"), list, "only one"), field.Invalid(field.NewPath("a"), map[string]any{"k": list}, "none"))
		}
		errs = append(field.ErrorList{field.Invalid(field.NewPath("first"), "shown", "whole")}, errs...)
		err := catalog.Invalid(schema.GroupKind{Kind: "Pod"}, "p", errs)
		if !strings.Contains(err.Error(), `first: Invalid value: "shown": whole`) {
			t.Errorf("%.200s", err.Error())
		}
		return len(err.Error())
	}
	if few, many := size(1000), size(100_000); few > 1<<20 || many > 1<<20 {
		t.Errorf("the errors have %d and %d bytes", few, many)
	}
}
