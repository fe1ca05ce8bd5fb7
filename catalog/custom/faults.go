package custom

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mostFaults is how many values of an object Kubernetes' validator explains. It compares each error with all others, and the
// error of an enum has all its values: 80,000 items without their key took minutes.
const mostFaults = 200

// tooManyFaults returns an error if more than mostFaults values are certainly wrong that were not wrong in old, which is nil in a
// creation. The value is at a place, which is "" for a whole object.
func (p *shape) tooManyFaults(at string, value, old any) field.ErrorList {
	before := faultCount{limit: -1}
	before.count(p, old)
	now := faultCount{limit: before.n + mostFaults, place: []string{at}}
	now.count(p, value)
	if now.n <= now.limit {
		return nil
	}
	// This type of error keeps rules from being checked.
	return field.ErrorList{field.TypeInvalid(field.NewPath(now.first), field.OmitValueType{}, fmt.Sprintf("it does not fit the schema, nor do more than %d other values", mostFaults))}
}

// A faultCount counts the values that are certainly wrong, up to one more than a limit. A limit below 0 is none.
type faultCount struct {
	limit int
	n     int
	place []string // of the value
	first string   // place of the first one
}

// fault counts a value.
func (c *faultCount) fault() {
	if c.n++; c.n == 1 {
		c.first = strings.TrimPrefix(strings.Join(c.place, ""), ".")
	}
}

func (c *faultCount) full() bool { return c.limit >= 0 && c.n > c.limit }

// count counts in a value with the shape p. It knows fewer faults than there are: of null, formats, sizes and numbers
// that are out of bounds it counts none.
func (c *faultCount) count(p *shape, value any) {
	if p == nil {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		c.countMap(p, value)
	case []any:
		if p.kind != "array" && p.kind != "any" {
			c.fault()
			return
		}
		for i := 0; i < len(value) && !c.full(); i++ {
			c.enter(fmt.Sprintf("[%d]", i), p.items, value[i])
		}
	case string:
		wrongKind := p.kind != "string" && p.kind != "int-or-string" && p.kind != "any"
		if wrongKind || p.enum != nil && !p.enum[value] || p.pattern != nil && !p.pattern.MatchString(value) {
			c.fault()
		}
	case bool:
		if p.kind != "boolean" && p.kind != "any" || p.enum != nil && !p.enum[value] {
			c.fault()
		}
	case int64:
		if p.kind == "boolean" || p.kind == "string" || p.kind == "array" || p.kind == "object" {
			c.fault()
		}
	}
}

func (c *faultCount) countMap(p *shape, value map[string]any) {
	if p.kind != "object" && p.kind != "any" {
		c.fault()
		return
	}
	for _, name := range p.required {
		if _, has := value[name]; !has {
			c.fault()
		}
	}
	for name, v := range value {
		if c.full() {
			return
		}
		inner, found := p.properties[name]
		if !found {
			inner = p.more
		}
		c.enter("."+name, inner, v)
	}
}

func (c *faultCount) enter(step string, p *shape, value any) {
	if p == nil {
		return
	}
	c.place = append(c.place, step)
	c.count(p, value)
	c.place = c.place[:len(c.place)-1]
}
