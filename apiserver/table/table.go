package table

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sampan-io/sampan/catalog"
)

// nameFormat marks the column that clients take for the object's name.
const nameFormat = "name"

// Definitions returns the columns of a table of the kind: a name column first unless
// the kind has one of its own, then the kind's. A kind without columns gets its
// age. Custom resources always have the name column, whatever their own are.
func Definitions(kind *catalog.Kind) []metav1.TableColumnDefinition {
	defs := make([]metav1.TableColumnDefinition, 0, len(kind.Columns)+2)
	if !namesItself(kind) {
		defs = append(defs, metav1.TableColumnDefinition{
			Name: "Name", Type: "string", Format: nameFormat, Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
		})
	}
	for _, c := range kind.Columns {
		defs = append(defs, c.TableColumnDefinition)
	}
	if len(kind.Columns) == 0 {
		defs = append(defs, metav1.TableColumnDefinition{
			Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		})
	}
	return defs
}

// namesItself reports whether a kind with a Go type has its name among its columns. Other columns may have the format
// too, for the name of another object.
func namesItself(kind *catalog.Kind) bool {
	if kind.Untyped() {
		return false
	}
	for _, c := range kind.Columns {
		if c.Format == nameFormat && c.Name == "Name" {
			return true
		}
	}
	return false
}

// New returns a table without rows. Its metadata is for the caller to set.
func New(kind *catalog.Kind) *metav1.Table {
	return &metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: "Table", APIVersion: metav1.SchemeGroupVersion.String()},
		ColumnDefinitions: Definitions(kind),
		Rows:              []metav1.TableRow{},
	}
}

// Row returns the row of an object at a moment. What include says of the object comes
// with it; whole returns the object's JSON and is called only for
// [metav1.IncludeObject].
func Row(kind *catalog.Kind, obj catalog.Object, now time.Time, include metav1.IncludeObjectPolicy, whole func() ([]byte, error)) (metav1.TableRow, error) {
	cells := make([]any, 0, len(kind.Columns)+2)
	if !namesItself(kind) {
		cells = append(cells, obj.GetName())
	}
	for _, c := range kind.Columns {
		cells = append(cells, c.Cell(obj, now))
	}
	if len(kind.Columns) == 0 {
		cells = append(cells, age(obj, now))
	}
	row := metav1.TableRow{Cells: cells}
	switch include {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		raw, err := whole()
		if err != nil {
			return metav1.TableRow{}, err
		}
		row.Object = runtime.RawExtension{Raw: raw}
	default:
		raw, err := json.Marshal(Metadata(obj))
		if err != nil {
			return row, fmt.Errorf("metadata of %s %q: %w", kind.Kind, obj.GetName(), err)
		}
		row.Object = runtime.RawExtension{Raw: raw}
	}
	return row, nil
}

func age(obj catalog.Object, now time.Time) string {
	made := obj.GetCreationTimestamp()
	if made.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(made.Time))
}

// Metadata returns the object with nothing but its metadata, which it shares.
func Metadata(obj catalog.Object) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{
		Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String(),
	}}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if fields, ok := u.Object["metadata"].(map[string]any); ok {
			// A stored object has been checked to be metadata.
			_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &m.ObjectMeta)
		}
		return m
	}
	// The types of the Kubernetes API embed their ObjectMeta and give it out.
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := a.GetObjectMeta().(*metav1.ObjectMeta); ok {
			m.ObjectMeta = *meta
		}
	}
	return m
}

// MetadataList returns the objects with nothing but their metadata.
func MetadataList(meta metav1.ListMeta, objs []catalog.Object) *metav1.PartialObjectMetadataList {
	l := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: metav1.SchemeGroupVersion.String()},
		ListMeta: meta,
		Items:    make([]metav1.PartialObjectMetadata, len(objs)),
	}
	for i, obj := range objs {
		l.Items[i] = *Metadata(obj)
	}
	return l
}
