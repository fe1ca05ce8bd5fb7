package openapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// A mark adds facts that Go types do not have: how server-side apply merges a list or a map, the
// fields that are the keys of a list, the values of an enumeration, defaults
// other than zero, and which fields are required although they may be left out, or the reverse.
type mark struct {
	Model    string
	Field    string   // empty: the model itself
	Relation string   // map, set, granular, atomic, opaque, default, enum
	Keys     []string // of a map; of an enum its values
	Default  json.RawMessage
}

// The marks are lines "MODEL[/FIELD] RELATION [KEY...]", sorted. Lists that have none are
// atomic, maps and models that have none are granular; an opaque value may be anything. The model of
// an enumeration is a named string, and its values are a JSON array. A test keeps the marks equal to
// upstream's schema and to the comments of its types, and writes them with -update.
//
//go:embed marks.txt
var markLines string

var marks = sync.OnceValue(func() []mark { // read once, when a document or a schema is made
	all, err := parseMarks(markLines)
	if err != nil {
		panic(err) // a test reads the same lines
	}
	return all
})

func parseMarks(lines string) ([]mark, error) {
	var all []mark
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("openapi: %q: want MODEL[/FIELD] RELATION [KEY...]", line)
		}
		m := mark{Relation: words[1]}
		m.Model, m.Field, _ = strings.Cut(words[0], "/")
		switch m.Relation {
		case "map":
			m.Keys = words[2:]
		case "enum":
			if err := json.Unmarshal([]byte(strings.Join(words[2:], " ")), &m.Keys); err != nil {
				return nil, fmt.Errorf("openapi: %q: %w", line, err)
			}
		case "default":
			m.Default = json.RawMessage(strings.Join(words[2:], " "))
		case "set", "granular", "atomic", "opaque", "required", "optional":
		default:
			return nil, fmt.Errorf("openapi: %q: no such relation", line)
		}
		all = append(all, m)
	}
	return all, nil
}

// enums has the values of enumerations by model.
var enums = sync.OnceValue(func() map[string][]string { // as marks
	all := map[string][]string{}
	for _, m := range marks() {
		if m.Relation == "enum" {
			all[m.Model] = m.Keys
		}
	}
	return all
})

// requirements reports whether a field MODEL/FIELD is required, where its JSON tag does not say.
var requirements = sync.OnceValue(func() map[string]bool { // as marks
	all := map[string]bool{}
	for _, m := range marks() {
		if m.Relation == "required" || m.Relation == "optional" {
			all[m.Model+"/"+m.Field] = m.Relation == "required"
		}
	}
	return all
})

// mark puts the marks on the models that are there.
func (ms models) mark() {
	for _, m := range marks() {
		on := ms[m.Model]
		if on != nil && m.Field != "" {
			on = on.Properties[m.Field]
		}
		if on == nil {
			continue
		}
		switch m.Relation {
		case "map", "set":
			on.ListType, on.ListKeys = m.Relation, m.Keys
		case "granular", "atomic":
			on.MapType = m.Relation
		case "opaque":
			on.opaque = true
		case "default":
			on.Default = m.Default
		}
	}
	for _, m := range ms {
		if m.unmarked {
			continue
		}
		for name, p := range m.Properties {
			if list := name == "items" && len(m.Kinds) > 0; p.Type == "array" && p.ListType == "" && !list { // nothing applies a list of objects
				p.ListType = "atomic"
			}
		}
	}
}
