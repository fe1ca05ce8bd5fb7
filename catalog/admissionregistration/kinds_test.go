package admissionregistration_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/admissionregistration"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, admissionregistration.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, admissionregistration.Kinds()) }
