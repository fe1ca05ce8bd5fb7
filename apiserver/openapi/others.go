package openapi

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/internal/run"
)

// An othersPart is another server's version in the document of OpenAPI v2. Definitions and parameters
// whose names others have are renamed, as upstream's aggregator does.
type othersPart struct {
	of                             *aggregation.Swagger
	paths, definitions, parameters segment

	// The names of definitions in the server's document, the names of them that others had when the part was made, and the names in
	// the part. So it is known whether another part must be made.
	names, clashes, given []string

	parameterNames []string // in the part
	fault          error    // of a document that cannot be joined: then the segments are empty
}

// updateOthers makes the missing parts of versions that other servers serve, and returns the parts that are to be joined,
// in the order of priority. Versions with Go types are always those of this server.
func (p *olderParts) updateOthers(c *compressor, remote *aggregation.Remote, typed []schema.GroupVersion, form string) (all []*othersPart) {
	present := map[string]*othersPart{}
	var taken takenNames // made when it is needed: it has the names of all custom resources
	for _, v := range remote.Versions() {
		if v.Swagger == nil || slices.Contains(typed, v.GroupVersion) {
			continue
		}
		if taken.definitions == nil {
			taken = p.taken()
		}
		part := p.others[root(v.GroupVersion)]
		if part == nil || part.of != v.Swagger || !part.fits(&taken) {
			part = newOthersPart(c, v.Swagger, &taken, form)
		}
		present[root(v.GroupVersion)] = part
		if part.fault != nil {
			continue
		}
		for _, name := range part.given {
			taken.definitions[name] = true
		}
		for _, name := range part.parameterNames {
			taken.parameters[name] = true
		}
		all = append(all, part)
	}
	p.others = present
	return all
}

// takenNames are the names of the other parts.
type takenNames struct{ definitions, parameters map[string]bool }

func (p *olderParts) taken() takenNames {
	t := takenNames{map[string]bool{}, map[string]bool{}}
	for _, name := range slices.Concat(p.typed.names, kinded) {
		t.definitions[name] = true
	}
	for _, part := range p.custom {
		for _, name := range part.names {
			t.definitions[name] = true
		}
	}
	for name := range p.typed.parameters {
		t.parameters[name] = true
	}
	return t
}

// fits reports whether a part that is made now would have the same names.
func (part *othersPart) fits(taken *takenNames) bool {
	return slices.Equal(part.clashes, clashes(part.names, taken.definitions)) &&
		len(clashes(part.given, taken.definitions))+len(clashes(part.parameterNames, taken.parameters)) == 0
}

func clashes(names []string, taken map[string]bool) (found []string) {
	for _, name := range names {
		if taken[name] {
			found = append(found, name)
		}
	}
	return found
}

// newOthersPart makes a part.
func newOthersPart(c *compressor, of *aggregation.Swagger, taken *takenNames, form string) *othersPart {
	part := &othersPart{of: of}
	part.fault = run.Catch(func() error { return part.pack(c, taken, form) }) // the document is another server's
	return part
}

// occupied is the description of what takes a name while a document is merged: no definition is equal to it.
const occupied = "defined by another version"

func (part *othersPart) pack(c *compressor, taken *takenNames, form string) error {
	source := &spec.Swagger{}
	if err := source.UnmarshalJSON(part.of.JSON); err != nil {
		return err
	}
	part.names = slices.Sorted(maps.Keys(source.Definitions))
	part.clashes = clashes(part.names, taken.definitions)
	merged := &spec.Swagger{SwaggerProps: spec.SwaggerProps{Swagger: "2.0", Definitions: spec.Definitions{}, Parameters: map[string]spec.Parameter{}}}
	for name := range taken.definitions {
		merged.Definitions[name] = spec.Schema{SchemaProps: spec.SchemaProps{Description: occupied}}
	}
	for name := range taken.parameters {
		merged.Parameters[name] = spec.Parameter{ParamProps: spec.ParamProps{Description: occupied}}
	}
	if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(merged, source); err != nil {
		return err
	}
	for name := range taken.definitions {
		delete(merged.Definitions, name)
	}
	for name := range taken.parameters {
		delete(merged.Parameters, name)
	}
	if merged.Paths == nil || len(merged.Paths.Paths) == 0 {
		return errors.New("the OpenAPI document has no paths")
	}
	part.given, part.parameterNames = slices.Sorted(maps.Keys(merged.Definitions)), slices.Sorted(maps.Keys(merged.Parameters))
	paths, definitions, parameters, err := encodeMerged(merged, form)
	if err != nil {
		return err
	}
	if part.paths, err = c.segment(paths); err != nil {
		return err
	}
	if part.definitions, err = c.segment(definitions); err != nil {
		return err
	}
	part.parameters, err = c.segment(parameters)
	return err
}

// encodeMerged returns the members of the document's objects in one form. What cannot be protobuf is an error in both forms, so
// that clients of either see the same. In protobuf schemas have no bounds of values.
func encodeMerged(d *spec.Swagger, form string) (paths, definitions, parameters []byte, err error) {
	whole, err := d.MarshalJSON()
	if err != nil {
		return nil, nil, nil, err
	}
	var plain older
	if err := json.Unmarshal(whole, &plain); err != nil {
		return nil, nil, nil, err
	}
	if form != inProtobuf {
		return encodeJSON(d)
	}
	var m [3]message
	named(&m[0], 2, plain.Paths, (*message).olderPathItem)
	named(&m[1], 1, plain.Definitions, (*message).olderModel)
	named(&m[2], 1, plain.Parameters, (*message).olderParameter)
	return m[0], m[1], m[2], nil
}

func encodeJSON(d *spec.Swagger) (paths, definitions, parameters []byte, err error) {
	if paths, err = members(d.Paths.Paths); err != nil {
		return nil, nil, nil, err
	}
	if definitions, err = members(d.Definitions); err != nil {
		return nil, nil, nil, err
	}
	parameters, err = members(d.Parameters)
	return paths, definitions, parameters, err
}

// members returns the members of an object after a separator.
func members[T any](values map[string]T) ([]byte, error) {
	return entries[T](inJSON, 0, values, nil, ",")
}
