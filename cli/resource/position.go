package resource

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An origin is the text that an object was read from.
type origin struct {
	text         []byte
	line, column int    // of the input, from 1, where text begins
	path         string // of the object in text: "", or as items[3] in a List
}

// Position returns where in its input a field of the object stands, from 1, by a
// path such as spec.containers[0].image or metadata.labels[a.b/c]. If the field is
// not there, it is the place of the innermost one around it that is. ok is false for
// an object that was not read from a text.
func (i Info) Position(path string) (line, column int, ok bool) {
	line, column, _, ok = i.position(path)
	return line, column, ok
}

// position also says whether the field itself is there.
func (i Info) position(path string) (line, column int, exact, ok bool) {
	if len(i.origin.text) == 0 {
		return 0, 0, false, false
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(i.origin.text, &doc); err != nil || len(doc.Content) == 0 {
		return 0, 0, false, false
	}
	if i.origin.path != "" {
		path = strings.TrimSuffix(i.origin.path+"."+path, ".")
	}
	line, column, exact = find(doc.Content[0], path)
	if line == 1 {
		column += i.origin.column - 1
	}
	return line + i.origin.line - 1, column, exact, true
}

// find follows a path from a node as far as it goes. Of a field in a map it returns
// the place of the key, which is where a person looks. Exact means that it went to the
// end.
func find(n *yaml.Node, path string) (line, column int, exact bool) {
	line, column = n.Line, n.Column
	for path != "" {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		var key, value *yaml.Node
		key, value, path = step(n, path)
		if value == nil {
			return line, column, false
		}
		line, column = key.Line, key.Column
		n = value
	}
	return line, column, true
}

// step goes one step along a path. The key is the value itself in a list. A nil value
// means that there is no such step.
func step(n *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	switch n.Kind {
	case yaml.SequenceNode:
		inner, rest, ok := bracket(path)
		index, err := strconv.Atoi(inner)
		if !ok || err != nil || index < 0 || index >= len(n.Content) {
			return nil, nil, ""
		}
		return n.Content[index], n.Content[index], rest
	case yaml.MappingNode:
		if inner, rest, ok := bracket(path); ok {
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == strings.Trim(inner, `"'`) {
					return n.Content[i], n.Content[i+1], rest
				}
			}
			return nil, nil, ""
		}
		// A key may have dots in it: the longest one that fits is meant.
		longest := -1
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i].Value
			after, fits := strings.CutPrefix(path, k)
			if fits && (after == "" || after[0] == '.' || after[0] == '[') && len(k) > longest {
				longest, key, value, rest = len(k), n.Content[i], n.Content[i+1], strings.TrimPrefix(after, ".")
			}
		}
		return key, value, rest
	default: // nothing is inside of a scalar
	}
	return nil, nil, ""
}

// bracket reads [inner] from the front of a path.
func bracket(path string) (inner, rest string, ok bool) {
	path, ok = strings.CutPrefix(path, "[")
	if !ok {
		return "", "", false
	}
	inner, rest, ok = strings.Cut(path, "]")
	return inner, strings.TrimPrefix(rest, "."), ok
}

// maxPlaces is how many places an error names; somebody who has that many faults
// begins with the first ones.
const maxPlaces = 5

// Fault returns err with the place of the object in front: the document that it was
// read from and, for fields that err names, their lines and columns.
func (i Info) Fault(err error, fields ...string) error {
	if err == nil {
		return nil
	}
	place := i.Source
	var lines, around []string
	for _, f := range append(fields, fieldsOf(err)...) {
		line, column, exact, ok := i.position(f)
		list := &lines
		if !exact {
			list = &around
		}
		if at := fmt.Sprintf("line %d column %d", line, column); ok && !slices.Contains(*list, at) {
			*list = append(*list, at)
		}
	}
	if len(lines) == 0 {
		lines = around // something is missing there
	}
	if len(lines) > maxPlaces {
		lines = append(lines[:maxPlaces], fmt.Sprintf("%d other places", len(lines)-maxPlaces))
	}
	if len(lines) > 0 {
		place += ", " + strings.Join(lines, " and ")
	}
	return &SourceError{Place: place, Err: err}
}

// What API servers write about fields that they cannot decode, for which they give
// no list of causes.
var (
	strictField = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"`)
	wrongType   = regexp.MustCompile(`json: cannot unmarshal \S+ into Go struct field [^.\s]+\.(\S+) of type`)
)

// fieldsOf returns the fields that an answer of a server finds fault with.
func fieldsOf(err error) []string {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return nil
	}
	status := answer.Status()
	var fields []string
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			if c.Field != "" {
				fields = append(fields, strings.TrimPrefix(c.Field, ".")) // of conflicts they begin with a dot
			}
		}
	}
	for _, pattern := range []*regexp.Regexp{strictField, wrongType} {
		for _, m := range pattern.FindAllStringSubmatch(status.Message, -1) {
			fields = append(fields, m[1])
		}
	}
	return fields
}
