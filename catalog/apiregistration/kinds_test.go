package apiregistration_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/apiregistration"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, apiregistration.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, apiregistration.Kinds()) }

func TestStories(t *testing.T) {
	catalogtest.Stories(t, apiregistration.Kinds(), "testdata/stories", "testdata/accepted")
}
