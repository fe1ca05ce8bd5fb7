package discovery_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/discovery"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, discovery.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, discovery.Kinds()) }
