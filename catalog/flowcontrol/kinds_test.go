package flowcontrol_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, flowcontrol.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, flowcontrol.Kinds()) }
