package table_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/table"
	"github.com/sampan-io/sampan/catalog"
)

func column(name, format string) catalog.Column {
	return catalog.Column{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: name, Type: "string", Format: format},
		Cell:                  func(catalog.Object, time.Time) any { return name },
	}
}

func TestRow(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(at)}}
	whole := func() ([]byte, error) { return []byte(`{"whole":true}`), nil }
	tests := []struct {
		name    string
		columns []catalog.Column
		include metav1.IncludeObjectPolicy
		defs    []string
		cells   []any
		object  string
	}{
		{"no columns of its own", nil, metav1.IncludeNone, []string{"Name", "Age"}, []any{"a", "90m"}, ""},
		{"columns", []catalog.Column{column("Data", "")}, metav1.IncludeNone, []string{"Name", "Data"}, []any{"a", "Data"}, ""},
		{"a name column of its own", []catalog.Column{column("Message", ""), column("Name", "name")}, metav1.IncludeNone, []string{"Message", "Name"}, []any{"Message", "Name"}, ""},
		{
			"a column with the name of something else",
			[]catalog.Column{column("Attacher", "name"), column("Node", "")},
			metav1.IncludeNone,
			[]string{"Name", "Attacher", "Node"},
			[]any{"a", "Attacher", "Node"},
			"",
		},
		{"metadata", nil, "", []string{"Name", "Age"}, []any{"a", "90m"}, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z"}}`},
		{"the object", nil, metav1.IncludeObject, []string{"Name", "Age"}, []any{"a", "90m"}, `{"whole":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kind := &catalog.Kind{Columns: tt.columns}
			row, err := table.Row(kind, obj, at.Add(90*time.Minute), tt.include, whole)
			if err != nil {
				t.Fatal(err)
			}
			var defs []string
			for _, d := range table.Definitions(kind) {
				defs = append(defs, d.Name)
			}
			if diff := cmp.Diff(tt.defs, defs); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.cells, row.Cells); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
			if got := string(row.Object.Raw); got != tt.object {
				t.Errorf("object %s, want %s", got, tt.object)
			}
		})
	}
}
