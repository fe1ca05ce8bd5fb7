package core_test

import (
	"flag"
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/core"
)

var _ = flag.Bool("update", false, "write the stories anew")

func TestStories(t *testing.T) {
	catalogtest.Stories(t, core.Kinds(), "testdata/stories", "testdata/accepted")
}
