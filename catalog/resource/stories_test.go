package resource_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/resource"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, resource.Kinds(), "testdata/stories", "testdata/accepted")
}
