package core_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/core"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, core.Kinds(), "testdata/stories", "testdata/accepted")
}
