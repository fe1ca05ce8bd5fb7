package operation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// Fields of every kind.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// A Selection is which objects of a kind a request is about: what the store is asked
// for, and what is left to be checked on each object.
type Selection struct {
	kind   *catalog.Kind
	Query  store.Query
	labels labels.Requirements
	fields fields.Requirements
	Where  fields.Selector // what fields came from, for authorization; nil if none
	Name   string          // of the only object that can match, or empty
}

// Select reads selectors. A term of the store's index narrows the query where there is
// one: of an indexed field that must have a value, otherwise of a label that must have one value.
func Select(kind *catalog.Kind, namespace, labelSelector, fieldSelector string) (Selection, error) {
	c := Selection{kind: kind}
	if labelSelector != "" {
		sel, err := labels.Parse(labelSelector)
		if err != nil {
			return c, apierrors.NewBadRequest(err.Error())
		}
		var selectable bool
		if c.labels, selectable = sel.Requirements(); !selectable {
			return c, apierrors.NewBadRequest(fmt.Sprintf("label selector %q selects nothing", labelSelector))
		}
	}
	if fieldSelector != "" {
		sel, err := fields.ParseSelector(fieldSelector)
		if err != nil {
			return c, apierrors.NewBadRequest(err.Error())
		}
		c.Where, c.fields = sel, sel.Requirements()
		if err := c.checkFields(); err != nil {
			return c, err
		}
	}
	if namespace == "" && kind.Namespaced {
		namespace, _ = c.equals(fieldNamespace)
	}
	c.Query.Prefix = kind.Prefix(namespace)
	c.Name, _ = c.equals(fieldName)
	if c.Name != "" && (namespace != "" || !kind.Namespaced) && !strings.Contains(c.Name, "/") {
		c.Query.Prefix = kind.Key(namespace, c.Name)
		return c, nil
	}
	c.Query.Term = c.term()
	return c, nil
}

func (c *Selection) checkFields() error {
	common := []string{fieldName, fieldNamespace}
	if !c.kind.Namespaced && (c.kind.Untyped() || len(c.kind.Fields) > 0) { // as upstream; it takes the namespace where there are no other fields
		common = common[:1]
	}
	for _, f := range c.fields {
		if slices.Contains(common, f.Field) || c.kind.Fields[f.Field] != nil {
			continue
		}
		if len(c.kind.Fields) == 0 && !c.kind.Untyped() {
			return apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only %q, %q", f.Field, fieldName, fieldNamespace))
		}
		known := slices.Sorted(maps.Keys(c.kind.Fields))
		return apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s, want one of %s", f.Field,
			strings.Join(append(common, known...), ", ")))
	}
	return nil
}

// equals returns the value that a field must have, if it must have one.
func (c *Selection) equals(name string) (value string, ok bool) {
	for _, f := range c.fields {
		if f.Field == name && f.Operator != selection.NotEquals {
			return f.Value, true
		}
	}
	return "", false
}

func (c *Selection) term() string {
	for _, name := range c.kind.Indexed {
		if value, ok := c.equals(name); ok && value != "" {
			return codec.FieldTerm(name, value)
		}
	}
	for _, r := range c.labels {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				return codec.LabelTerm(r.Key(), values[0])
			}
		case selection.NotIn, selection.NotEquals, selection.Exists, selection.DoesNotExist, selection.GreaterThan, selection.LessThan:
		}
	}
	return ""
}

// readsContent reports whether fields of objects without a Go type are to be checked, beside their metadata.
func (c *Selection) readsContent() bool {
	return c.kind.Untyped() && slices.ContainsFunc(c.fields, func(f fields.Requirement) bool { return f.Field != fieldName && f.Field != fieldNamespace })
}

// readied returns the items in the form that Matches takes: the functions of the kind get objects of the hub.
func (c *Selection) readied(ctx context.Context, items []*codec.Item) ([]*codec.Item, error) {
	if !c.readsContent() {
		return items, nil
	}
	return codec.Shown(ctx, c.kind.Hub(), items)
}

// Everything reports whether there is nothing to check on each object.
func (c *Selection) Everything() bool { return len(c.labels)+len(c.fields) == 0 }

// has reports whether a record that the store found for the query is one of the chosen objects. A
// record that cannot be read is not.
func (c *Selection) has(i *codec.Item) bool {
	return i.Fault() == nil && (c.Everything() || c.Matches(i))
}

// Matches checks an object that the store found for the query.
func (c *Selection) Matches(i *codec.Item) bool {
	if len(c.labels) > 0 {
		set := labels.Set(i.Labels())
		for n := range c.labels {
			if !c.labels[n].Matches(set) {
				return false
			}
		}
	}
	for _, f := range c.fields {
		if (f.Value == c.value(f.Field, i)) == (f.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

func (c *Selection) value(name string, i *codec.Item) string {
	switch name {
	case fieldName:
		return i.Object().GetName()
	case fieldNamespace:
		return i.Object().GetNamespace()
	}
	return c.kind.Fields[name](i.Object())
}
