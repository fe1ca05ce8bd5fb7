package scheduling_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/scheduling"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, scheduling.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, scheduling.Kinds()) }
