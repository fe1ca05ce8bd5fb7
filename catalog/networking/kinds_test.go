package networking_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/networking"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, networking.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, networking.Kinds()) }
