package coordination_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/coordination"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, coordination.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, coordination.Kinds()) }
