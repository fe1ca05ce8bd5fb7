package catalog_test

import (
	"slices"
	"testing"

	"github.com/sampan-io/sampan/catalog"
)

func TestFieldsLeftAlone(t *testing.T) {
	k := &catalog.Kind{Keeps: []string{"spec"}, Subresources: []catalog.Subresource{
		{Name: "status", Shape: catalog.Part{Keeps: []string{"status.conditions"}}},
		{Name: "approval", Shape: catalog.Part{Keeps: []string{"spec", "status.certificate"}}},
		{Name: "log", Shape: catalog.Stream{}},
	}}
	for _, c := range []struct {
		sub  string
		want []string
	}{
		{"", []string{"status", "spec"}},
		{"status", []string{"spec", "status.conditions"}},
		{"approval", []string{"spec", "status.certificate"}},
		{"log", nil},
	} {
		if got := k.LeftAlone(k.Subresource(c.sub)); !slices.Equal(got, c.want) {
			t.Errorf("writes through %q leave %q alone, want %q", c.sub, got, c.want)
		}
	}
}
