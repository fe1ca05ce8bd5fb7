package resource

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	configuration "github.com/sampan-io/sampan/internal/document"

	"github.com/sampan-io/sampan/internal/plural"
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
	line, column, exact = configuration.Find(doc.Content[0], path)
	if line == 1 {
		column += i.origin.column - 1
	}
	return line + i.origin.line - 1, column, exact, true
}

// maxPlaces is how many positions an error lists; a user with more errors fixes the
// first ones first.
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
		lines = append(lines[:maxPlaces], plural.Count(len(lines)-maxPlaces, "other place"))
	}
	if len(lines) > 0 {
		place += ", " + strings.Join(lines, " and ")
	}
	return &SourceError{Place: place, Err: err}
}

// The messages of API servers about fields that they cannot decode. These messages come
// without a list of causes.
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
