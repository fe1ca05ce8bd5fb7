package flowcontrol_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, flowcontrol.Kinds(), "testdata/stories", "testdata/accepted")
}
