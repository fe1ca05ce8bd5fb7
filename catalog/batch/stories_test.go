package batch_test

import (
	"flag"
	"testing"

	"github.com/sampan-io/sampan/catalog/batch"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

var _ = flag.Bool("update", false, "write the stories anew")

func TestStories(t *testing.T) {
	catalogtest.Stories(t, batch.Kinds(), "testdata/stories", "testdata/accepted")
}
