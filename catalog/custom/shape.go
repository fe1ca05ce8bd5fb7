package custom

import (
	"math"
	"reflect"
	"regexp"
	"unicode/utf8"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// A shape is a schema in a form that is fast to check: nearly all objects are valid, and Kubernetes' validator, which
// explains the faults, allocates a validator for each value. A shape knows the keywords that schemas are made of; of
// other keywords, and of values that are hard to judge, it says nothing. A nil shape says nothing of any value.
type shape struct {
	kind       string // type; "any" for one that is not said, "int-or-string"
	format     string
	properties map[string]*shape
	more       *shape // of further properties; nil if they may be anything
	items      *shape
	required   []string
	enum       map[any]bool
	pattern    *regexp.Regexp

	min, max         float64
	minOpen, maxOpen bool // min or max itself is excluded
	minSize, maxSize int64
}

// anything is the shape of which every value is.
func anything() *shape {
	return &shape{kind: "any", min: math.Inf(-1), max: math.Inf(1), maxSize: math.MaxInt64}
}

// newShape returns the shape of a schema, or nil if it has other keywords at its top.
func newShape(s *structuralschema.Structural) *shape {
	out := anything()
	switch {
	case s.XIntOrString:
		out.kind = "int-or-string"
	case s.Type != "":
		out.kind = s.Type
	}
	if v := s.ValueValidation; v != nil && !out.add(s, v) {
		return nil
	}
	if len(s.Properties) > 0 {
		out.properties = make(map[string]*shape, len(s.Properties))
	}
	for name, property := range s.Properties {
		out.properties[name] = newShape(&property)
	}
	if more := s.AdditionalProperties; more != nil {
		if more.Structural == nil && !more.Bool {
			return nil
		}
		out.more = anything()
		if more.Structural != nil {
			if out.more = newShape(more.Structural); out.more == nil {
				return nil
			}
		}
	}
	if s.Items != nil {
		if out.items = newShape(s.Items); out.items == nil {
			return nil
		}
	}
	return out
}

// add adds keywords, and reports whether it knows them all.
func (p *shape) add(s *structuralschema.Structural, v *structuralschema.ValueValidation) bool {
	eitherType := []structuralschema.NestedValueValidation{
		{ForbiddenGenerics: structuralschema.Generic{Type: "integer"}}, {ForbiddenGenerics: structuralschema.Generic{Type: "string"}},
	}
	if len(v.AnyOf) > 0 && !(s.XIntOrString && reflect.DeepEqual(v.AnyOf, eitherType)) || len(v.AllOf) > 0 || len(v.OneOf) > 0 || v.Not != nil || v.MultipleOf != nil || v.UniqueItems {
		return false
	}
	p.format, p.required = v.Format, v.Required
	if v.Minimum != nil {
		p.min, p.minOpen = *v.Minimum, v.ExclusiveMinimum
	}
	if v.Maximum != nil {
		p.max, p.maxOpen = *v.Maximum, v.ExclusiveMaximum
	}
	minSizes := map[string]*int64{"string": v.MinLength, "array": v.MinItems, "object": v.MinProperties}
	maxSizes := map[string]*int64{"string": v.MaxLength, "array": v.MaxItems, "object": v.MaxProperties}
	for _, kind := range []string{"string", "array", "object"} {
		if kind != p.kind && (minSizes[kind] != nil || maxSizes[kind] != nil) {
			return false // sizes of values of another type
		}
	}
	if n := minSizes[p.kind]; n != nil {
		p.minSize = *n
	}
	if n := maxSizes[p.kind]; n != nil {
		p.maxSize = *n
	}
	if v.Pattern != "" {
		var err error
		if p.pattern, err = regexp.Compile(v.Pattern); err != nil {
			return false
		}
	}
	for _, value := range v.Enum {
		switch value.Object.(type) {
		case string, bool, int64:
		default:
			return false
		}
		if p.enum == nil {
			p.enum = map[any]bool{}
		}
		p.enum[value.Object] = true
	}
	return true
}

// holds reports whether a value is certainly valid; false says nothing.
func (p *shape) holds(value any) bool {
	if p == nil {
		return false
	}
	switch value := value.(type) {
	case map[string]any:
		return (p.kind == "object" || p.kind == "any") && p.format == "" && p.enum == nil && p.holdsMap(value)
	case []any:
		if p.kind != "array" && p.kind != "any" || p.format != "" || p.enum != nil || int64(len(value)) < p.minSize || int64(len(value)) > p.maxSize {
			return false
		}
		for _, item := range value {
			if p.items != nil && !p.items.holds(item) {
				return false
			}
		}
		return true
	case string:
		return p.holdsText(value)
	case bool:
		return (p.kind == "boolean" || p.kind == "any") && p.format == "" && (p.enum == nil || p.enum[value])
	case int64:
		return p.holdsNumber(value)
	case float64:
		return (p.kind == "number" || p.kind == "any") && p.format == "" && p.enum == nil && p.between(value)
	}
	return false
}

func (p *shape) holdsMap(value map[string]any) bool {
	if int64(len(value)) < p.minSize || int64(len(value)) > p.maxSize {
		return false
	}
	for _, name := range p.required {
		if value[name] == nil {
			return false
		}
	}
	for name, v := range value {
		property, found := p.properties[name]
		switch {
		case found && !property.holds(v):
			return false
		case !found && p.more != nil && !p.more.holds(v):
			return false
		}
	}
	return true
}

func (p *shape) holdsText(value string) bool {
	if p.kind != "string" && p.kind != "int-or-string" && p.kind != "any" || p.enum != nil && !p.enum[value] {
		return false
	}
	if p.format != "" && !(p.format == "date-time" && isTime(value)) {
		return false
	}
	if int64(len(value)) > p.maxSize || p.minSize > 0 && int64(utf8.RuneCountInString(value)) < p.minSize {
		return false
	}
	return p.pattern == nil || p.pattern.MatchString(value)
}

func (p *shape) holdsNumber(value int64) bool {
	const exact = 1 << 53 // larger ones change when they become floating point numbers
	if value < -exact || value > exact {
		return false
	}
	switch p.kind {
	case "integer", "number", "int-or-string", "any":
	default:
		return false
	}
	switch p.format {
	case "", "int64":
	case "int32":
		if value < math.MinInt32 || value > math.MaxInt32 {
			return false
		}
	default:
		return false
	}
	return (p.enum == nil || p.enum[value]) && p.between(float64(value))
}

func (p *shape) between(n float64) bool {
	return n >= p.min && n <= p.max && !(p.minOpen && n == p.min) && !(p.maxOpen && n == p.max)
}
