package discovery_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/discovery"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, discovery.Kinds(), "testdata/stories", "testdata/accepted")
}
