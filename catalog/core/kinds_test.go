package core_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/core"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, core.Kinds(), "testdata/accepted", "Node")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, core.Kinds()) }
