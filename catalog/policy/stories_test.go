package policy_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/policy"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, policy.Kinds(), "testdata/stories", "testdata/accepted")
}
