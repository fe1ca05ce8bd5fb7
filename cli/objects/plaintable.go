package objects

import (
	"encoding/json"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// readTable reads a table. Some servers behind an APIService make none, and answer with
// the object or list itself: of that a table is made as kubectl makes it, with the
// names and ages.
func readTable(answer []byte, now time.Time) (metav1.Table, error) {
	var t metav1.Table
	if err := json.Unmarshal(answer, &t); err != nil || t.Kind == "Table" {
		return t, err
	}
	var list struct{ Items *[]json.RawMessage }
	if err := json.Unmarshal(answer, &list); err != nil {
		return t, err
	}
	items := []json.RawMessage{answer}
	if list.Items != nil {
		items = *list.Items
	}
	t = metav1.Table{ListMeta: t.ListMeta, ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name"}, {Name: "Age", Type: "string"},
	}}
	for _, raw := range items {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &o); err != nil {
			return t, err
		}
		if o.Name == "" {
			return t, errors.New("the response is not a table, an object or a list")
		}
		age := "<unknown>"
		if !o.CreationTimestamp.IsZero() {
			age = duration.HumanDuration(now.Sub(o.CreationTimestamp.Time))
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{o.Name, age}, Object: runtime.RawExtension{Raw: raw}})
	}
	return t, nil
}
