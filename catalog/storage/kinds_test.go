package storage_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/storage"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, storage.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, storage.Kinds()) }
