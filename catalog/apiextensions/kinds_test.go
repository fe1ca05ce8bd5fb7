package apiextensions_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/apiextensions"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, apiextensions.Kinds(), "testdata/accepted")
}

func TestStories(t *testing.T) {
	catalogtest.Stories(t, apiextensions.Kinds(), "testdata/stories", "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, apiextensions.Kinds()) }
