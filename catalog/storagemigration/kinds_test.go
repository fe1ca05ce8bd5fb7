package storagemigration_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/storagemigration"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, storagemigration.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, storagemigration.Kinds()) }
