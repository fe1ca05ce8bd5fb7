package autoscaling_test

import (
	"testing"

	"github.com/sampan-io/sampan/catalog/autoscaling"
	"github.com/sampan-io/sampan/catalog/catalogtest"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, autoscaling.Kinds(), "testdata/accepted")
}

func TestStories(t *testing.T) {
	catalogtest.Stories(t, autoscaling.Kinds(), "testdata/stories", "testdata/accepted")
}

func FuzzKinds(f *testing.F) { catalogtest.Fuzz(f, autoscaling.Kinds()) }
