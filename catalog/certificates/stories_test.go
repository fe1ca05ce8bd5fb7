package certificates_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/certificates"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, certificates.Kinds(), "testdata/stories", "testdata/accepted")
}
