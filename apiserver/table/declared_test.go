package table_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog/kinds"
)

// TestColumnsAreDeclaredAsUpstream has the columns whose type or format follows from nothing but upstream's definitions.
func TestColumnsAreDeclaredAsUpstream(t *testing.T) {
	for _, want := range []struct{ group, kind, column, columnType, format string }{
		{"", "ConfigMap", "Data", "string", ""},
		{"", "Secret", "Data", "string", ""},
		{"", "Event", "Count", "string", ""},
		{"apps", "Deployment", "Up-to-date", "string", ""},
		{"apps", "DaemonSet", "Up-to-date", "integer", ""},
		{"batch", "CronJob", "Suspend", "boolean", ""},
		{"storage.k8s.io", "VolumeAttachment", "Attacher", "string", "name"},
	} {
		found := false
		for _, k := range kinds.All() {
			if (schema.GroupKind{Group: k.Group, Kind: k.Kind}) != (schema.GroupKind{Group: want.group, Kind: want.kind}) {
				continue
			}
			for _, c := range k.Columns {
				if c.Name == want.column {
					found = true
					if c.Type != want.columnType || c.Format != want.format {
						t.Errorf("%s: the column %s has the type %q and format %q, want %q and %q", want.kind, c.Name, c.Type, c.Format, want.columnType, want.format)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s has no column %s", want.kind, want.column)
		}
	}
}
