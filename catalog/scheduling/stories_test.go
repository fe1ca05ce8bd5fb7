package scheduling_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/scheduling"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, scheduling.Kinds(), "testdata/stories", "testdata/accepted")
}
