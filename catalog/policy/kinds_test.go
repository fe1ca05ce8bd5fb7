package policy_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/policy"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, policy.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, policy.Kinds()) }
