package rbac_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/rbac"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, rbac.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, rbac.Kinds()) }
