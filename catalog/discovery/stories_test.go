package discovery_test

import (
	"flag"
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/discovery"
)

var _ = flag.Bool("update", false, "write the stories anew")

func TestStories(t *testing.T) {
	catalogtest.Stories(t, discovery.Kinds(), "testdata/stories", "testdata/accepted")
}
