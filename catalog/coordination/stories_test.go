package coordination_test

import (
	"flag"
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/coordination"
)

var _ = flag.Bool("update", false, "write the stories anew")

func TestStories(t *testing.T) {
	catalogtest.Stories(t, coordination.Kinds(), "testdata/stories", "testdata/accepted")
}
