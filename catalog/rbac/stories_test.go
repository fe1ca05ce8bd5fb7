package rbac_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/rbac"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, rbac.Kinds(), "testdata/stories", "testdata/accepted")
}
