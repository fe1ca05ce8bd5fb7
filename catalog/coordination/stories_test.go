package coordination_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/coordination"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, coordination.Kinds(), "testdata/stories", "testdata/accepted")
}
