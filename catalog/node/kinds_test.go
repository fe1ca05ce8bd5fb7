package node_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/node"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, node.Kinds(), "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, node.Kinds()) }
