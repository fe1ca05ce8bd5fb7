package batch_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/batch"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, batch.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, batch.Kinds()) }
