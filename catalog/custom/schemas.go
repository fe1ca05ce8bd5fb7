package custom

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
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
)

// idle is for how long a schema must not have been used to be dropped. Making it again takes about a millisecond, and
// one more for each CEL rule.
const idle = time.Minute

// A source is the schema of a version. Nearly all schemas of a cluster are hardly ever used, and decoded ones take ten
// times as much memory as their JSON, compiled rules a hundred times: so it keeps compressed JSON, and makes the rest of
// it when it is used. Collections of garbage report that time passes: the first one after a minute without use drops
// what was made. Nothing happens in a process that allocates nothing.
type source struct {
	packed []byte // nil if the version has no schema

	mu   sync.Mutex // serialises making
	made atomic.Pointer[schemas]
	used atomic.Int64 // when made was used last, in seconds of Unix time
}

// schemas is the decoded schema of a version.
type schemas struct {
	structural *structuralschema.Structural // nil if the version has no schema
	defaults   bool                         // there is a default in it

	once      sync.Once // guards what follows
	props     *apiextensions.JSONSchemaProps
	validator validation.SchemaValidator
	status    validation.SchemaValidator // of the status alone; nil if it has no schema
	rules     *cel.Validator             // nil if there are no rules
	err       error
}

func newSource(v *apiextensionsv1.CustomResourceValidation) (*source, error) {
	s := &source{}
	if v == nil || v.OpenAPIV3Schema == nil {
		return s, nil
	}
	data, err := json.Marshal(v.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	s.packed, err = pack(data)
	return s, err
}

func pack(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
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
	if err != nil || props == nil {
		return &schemas{}
	}
	made := &schemas{props: props}
	if made.structural, err = structuralschema.NewStructural(props); err != nil {
		return &schemas{props: props}
	}
	made.defaults = hasDefaults(made.structural)
	return made
}

// props returns the schema in the internal version of Kubernetes, or nil if there is none.
func (s *source) props() (*apiextensions.JSONSchemaProps, error) {
	if s.packed == nil {
		return nil, nil
	}
	data, err := io.ReadAll(flate.NewReader(bytes.NewReader(s.packed)))
	if err != nil {
		return nil, err
	}
	v1, out := &apiextensionsv1.JSONSchemaProps{}, &apiextensions.JSONSchemaProps{}
	if err := json.Unmarshal(data, v1); err != nil {
		return nil, err
	}
	return out, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, out, nil)
}

// compiled makes the validators and compiles the rules, once.
func (s *schemas) compiled() (*schemas, error) {
	s.once.Do(func() {
		s.err = s.compile(s.props)
		s.props = nil
	})
	return s, s.err
}

func (s *schemas) compile(props *apiextensions.JSONSchemaProps) (err error) {
	if s.validator, _, err = validation.NewSchemaValidator(props); err != nil {
		return fmt.Errorf("the schema of the definition: %w", err)
	}
	if props != nil {
		if status, found := props.Properties["status"]; found {
			if s.status, _, err = validation.NewSchemaValidator(&status); err != nil {
				return fmt.Errorf("the schema of the definition: %w", err)
			}
		}
	}
	if s.structural != nil {
		s.rules = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	}
	return nil
}

func hasDefaults(s *structuralschema.Structural) bool {
	found := false
	visitor := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		found = found || s.Default.Object != nil
		return false
	}}
	visitor.Visit(s)
	return found
}
