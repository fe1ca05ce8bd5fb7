package catalog

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Words that tables print where there is nothing to print.
const (
	None    = "<none>"
	Unknown = "<unknown>"
	Unset   = "<unset>"
)

// Text returns a column of strings.
func Text[T Object](name, description string, cell func(obj T) string) Column {
	return Timed(name, description, func(obj T, _ time.Time) string { return cell(obj) })
}

// Timed returns a column of strings that change with time.
func Timed[T Object](name, description string, cell func(obj T, now time.Time) string) Column {
	return Column{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: name, Type: "string", Description: description},
		Cell:                  func(obj Object, now time.Time) any { return cell(obj.(T), now) },
	}
}

// Number returns a column of whole numbers.
func Number[T Object](name, description string, cell func(obj T) int64) Column {
	return Column{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description},
		Cell:                  func(obj Object, _ time.Time) any { return cell(obj.(T)) },
	}
}

// Flag returns a column of true and false.
func Flag[T Object](name, description string, cell func(obj T) bool) Column {
	return Column{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: name, Type: "boolean", Description: description},
		Cell:                  func(obj Object, _ time.Time) any { return cell(obj.(T)) },
	}
}

// Wide returns the column as one that only "wide" output shows.
func (c Column) Wide() Column {
	c.Priority = 1
	return c
}

// Declared returns the column with another type and format in its definition. Upstream's definitions of some columns do not fit
// their cells, and programs read the definitions.
func (c Column) Declared(kind, format string) Column {
	c.Type, c.Format = kind, format
	return c
}

// NameColumn is the column that every table has. A [Kind] names it only if it
// does not come first.
func NameColumn() Column {
	c := Text("Name", metav1.ObjectMeta{}.SwaggerDoc()["name"], func(obj Object) string { return obj.GetName() })
	c.Format = "name"
	return c
}

// Age is the column that says how long ago an object was created.
func Age() Column {
	return Timed("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], func(obj Object, now time.Time) string {
		return Since(obj.GetCreationTimestamp().Time, now)
	})
}

// Since says in a few characters how long t was before now: "5m32s", "3d".
func Since(t, now time.Time) string {
	if t.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

// OrNone returns s, or the word for nothing if it is empty.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}
