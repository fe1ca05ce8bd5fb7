package admissionregistration_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/admissionregistration"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, admissionregistration.Kinds(), "testdata/stories", "testdata/accepted")
}
