package storage_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/storage"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, storage.Kinds(), "testdata/stories", "testdata/accepted")
}
