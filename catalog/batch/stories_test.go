package batch_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/batch"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, batch.Kinds(), "testdata/stories", "testdata/accepted")
}
