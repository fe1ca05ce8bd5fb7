package storagemigration_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/storagemigration"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, storagemigration.Kinds(), "testdata/stories", "testdata/accepted")
}
