package node_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/node"
)

func TestStories(t *testing.T) {
	catalogtest.Stories(t, node.Kinds(), "testdata/stories", "testdata/accepted")
}
