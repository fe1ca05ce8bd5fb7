package certificates_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/certificates"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, certificates.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, certificates.Kinds()) }
