package apps_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/apps"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, apps.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, apps.Kinds()) }
