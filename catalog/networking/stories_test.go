package networking_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/networking"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, networking.Kinds(), "testdata/stories", "testdata/accepted")
}
