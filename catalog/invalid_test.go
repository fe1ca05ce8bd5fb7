package catalog_test

import (
	"strings"
	"testing"

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
