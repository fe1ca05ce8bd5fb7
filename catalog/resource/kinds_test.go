package resource_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/resource"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, resource.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, resource.Kinds()) }
