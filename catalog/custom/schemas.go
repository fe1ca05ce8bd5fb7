package custom

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// idle is for how long a schema must not have been used to be dropped. Making it again takes about a millisecond, and
// one more for each CEL rule.
const idle = time.Minute

// A source is the schema of a version. Nearly all schemas of a cluster are hardly ever used, and decoded ones take ten
// times as much memory as their encoding, compiled rules a hundred times: so it keeps the schema compressed, and makes the rest of
// it when it is used. Collections of garbage report that time passes: the first one after a minute without use drops
// what was made. Nothing happens in a process that allocates nothing.
type source struct {
	packed []byte // the schema as compressed protobuf; nil if the version has none
	digest string // of the schema; empty if the version has none

	mu   sync.Mutex // serialises making
	made atomic.Pointer[schemas]
	used atomic.Int64 // when made was used last, in seconds of Unix time
}

// schemas is the decoded schema of a version.
type schemas struct {
	structural *structuralschema.Structural // nil if the version has no schema
	defaults   *defaults
	embedded   bool          // there are embedded resources in it
	lists      bool          // there are lists in it that are sets or maps
	shape      func() *shape // nil of a schema that the shape does not know
	rules      func() (rules *ruleset, ok bool)
	explain    func() *explanation
}

// An explanation explains the faults of an object. It is made when the first object is wrong.
type explanation struct {
	schema *spec.Schema
	status *spec.Schema   // of the status alone; nil if it has no schema
	rules  *cel.Validator // nil if there are no rules
	err    error
}

func newSource(v *apiextensionsv1.CustomResourceValidation) (*source, error) {
	s := &source{}
	if v == nil || v.OpenAPIV3Schema == nil {
		return s, nil
	}
	data, err := v.OpenAPIV3Schema.Marshal()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	s.digest = hex.EncodeToString(sum[:])
	s.packed, err = pack(data)
	return s, err
}

// openAPI returns the schema with its texts, for documents, or nil if there is none. It is made at each call.
func (s *source) openAPI() *spec.Schema {
	v1, err := s.unpack()
	if err != nil || v1 == nil {
		return nil
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, &internal, nil); err != nil {
		return nil
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil // Kubernetes does not show a schema that is not structural
	}
	return structural.Unfold().ToKubeOpenAPI() // what is an integer or a string says so in anyOf, too
}

// undocumented takes out of a schema what only people read, which is most of it.
func undocumented(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.Description, s.Title, s.Example, s.ExternalDocs = "", "", nil, nil
	for name, property := range s.Properties {
		undocumented(&property)
		s.Properties[name] = property
	}
	if s.AdditionalProperties != nil {
		undocumented(s.AdditionalProperties.Schema)
	}
	if s.Items != nil {
		undocumented(s.Items.Schema)
	}
	undocumented(s.Not)
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			undocumented(&list[i])
		}
	}
}

// writers are compressors to use again: making one takes more time than its use.
var writers = sync.Pool{New: func() any { // a cache
	w, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

func pack(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	w := writers.Get().(*flate.Writer) // the pool has nothing else
	defer writers.Put(w)
	w.Reset(&packed)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return bytes.Clone(packed.Bytes()), nil
}

// get returns the decoded schema. It must not be changed.
func (s *source) get() *schemas {
	s.used.Store(time.Now().Unix())
	if made := s.made.Load(); made != nil {
		return made
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if made := s.made.Load(); made != nil {
		return made
	}
	made := s.make()
	s.made.Store(made)
	s.dropWhenIdle()
	return made
}

// dropWhenIdle drops made at the first collection of garbage that finds it idle.
func (s *source) dropWhenIdle() {
	type tick struct{ _ *int }
	runtime.AddCleanup(&tick{}, func(s *source) {
		if time.Now().Unix()-s.used.Load() >= int64(idle/time.Second) {
			s.made.Store(nil)
			return
		}
		s.dropWhenIdle()
	}, s)
}

// make decodes the schema. A definition that was accepted has no errors; if there is one nevertheless, there is no
// structural schema, and validation reports the error.
func (s *source) make() *schemas {
	props, err := s.props()
	made := &schemas{}
	if err == nil && props != nil {
		if made.structural, err = structuralschema.NewStructural(props); err != nil {
			made.structural = nil
		}
	}
	made.defaults = newDefaults(made.structural)
	visitor := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		made.embedded = made.embedded || s.XEmbeddedResource
		made.lists = made.lists || s.XListType != nil && *s.XListType != "atomic"
		return false
	}}
	if made.structural != nil {
		visitor.Visit(made.structural)
	}
	made.shape = sync.OnceValue(func() *shape {
		if made.structural == nil {
			return nil
		}
		return newShape(made.structural)
	})
	made.rules = sync.OnceValues(func() (*ruleset, bool) {
		if made.structural == nil || !hasRules(made.structural) {
			return nil, true
		}
		return newRuleset(made.structural)
	})
	made.explain = sync.OnceValue(func() *explanation {
		if err != nil {
			return &explanation{err: err}
		}
		props, err := s.props() // again: few need them, and they are large
		if err != nil {
			return &explanation{err: err}
		}
		return explain(props, made.structural)
	})
	return made
}

// props returns the schema in the internal version of Kubernetes, or nil if there is none.
func (s *source) props() (*apiextensions.JSONSchemaProps, error) {
	v1, err := s.unpack()
	if err != nil || v1 == nil {
		return nil, err
	}
	undocumented(v1)
	out := &apiextensions.JSONSchemaProps{}
	return out, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, out, nil)
}

// unpack returns the schema as it is in the definition, for the caller to keep, or nil if there is none.
func (s *source) unpack() (*apiextensionsv1.JSONSchemaProps, error) {
	if s.packed == nil {
		return nil, nil // there is none
	}
	data, err := io.ReadAll(flate.NewReader(bytes.NewReader(s.packed)))
	if err != nil {
		return nil, err
	}
	v1 := &apiextensionsv1.JSONSchemaProps{}
	return v1, v1.Unmarshal(data)
}

// explain makes the explanation of a schema, whose structural form is nil if there is no schema.
func explain(props *apiextensions.JSONSchemaProps, structural *structuralschema.Structural) *explanation {
	e := &explanation{}
	if _, e.schema, e.err = validation.NewSchemaValidator(props); e.err != nil {
		return e
	}
	if props != nil {
		if status, found := props.Properties["status"]; found {
			if _, e.status, e.err = validation.NewSchemaValidator(&status); e.err != nil {
				return e
			}
		}
	}
	if structural != nil {
		e.rules = cel.NewValidator(structural, true, celconfig.PerCallLimit)
	}
	return e
}
