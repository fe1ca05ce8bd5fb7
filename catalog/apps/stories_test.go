package apps_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/apps"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, apps.Kinds(), "testdata/stories", "testdata/accepted")
}
