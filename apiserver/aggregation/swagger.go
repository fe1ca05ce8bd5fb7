package aggregation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sampan-io/sampan/internal/run"
)

// A Swagger is the part of a server's OpenAPI v2 document that describes one version. It is not changed.
type Swagger struct {
	JSON []byte // a document with paths, definitions and parameters
	Hash string // of JSON
}

// Bounds on documents of other servers. To make 1 MiB part of the document of this server allocates 150 MiB, and the time of some
// steps grows with the square of the depth.
const (
	largestSwagger = 1 << 20 // bytes of the part about one version
	deepestSwagger = 500     // levels, as of objects
)

// madeHere begins the tag of a document to which the server has given none.
const madeHere = "sha256:"

// swagger returns a version's part of a server's answer to a request for OpenAPI v2, and the tag of the answer. A document
// that cannot be used changes nothing.
func swagger(answer *reply, gv schema.GroupVersion, before *Swagger, tag string) (*Swagger, string) {
	switch {
	case answer.code == http.StatusNotFound:
		return nil, "" // a server without OpenAPI is complete
	case answer.code != http.StatusOK:
		return before, tag
	}
	now := answer.etag
	if now == "" {
		sum := sha256.Sum256(answer.body)
		now = madeHere + hex.EncodeToString(sum[:])
	}
	if now == tag {
		return before, tag
	}
	var part []byte
	err := run.Catch(func() (err error) {
		part, err = swaggerOf(answer.body, gv)
		return err
	})
	if err != nil || len(part) > largestSwagger {
		return before, now
	}
	sum := sha256.Sum256(part)
	return &Swagger{part, hex.EncodeToString(sum[:])}, now
}

// swaggerOf returns the part of a document about a version: the paths below that of the version, and their references.
func swaggerOf(data []byte, gv schema.GroupVersion) ([]byte, error) {
	if depth := depthOf(data); depth > deepestSwagger {
		return nil, fmt.Errorf("the OpenAPI document has %d levels, want at most %d", depth, deepestSwagger)
	}
	whole := &spec.Swagger{}
	if err := whole.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	if whole.Paths == nil {
		return nil, errors.New("the OpenAPI document has no paths")
	}
	kept := aggregator.FilterSpecByPathsWithoutSideEffects(whole, []string{"/apis/" + gv.Group + "/" + gv.Version + "/"})
	part := &spec.Swagger{SwaggerProps: spec.SwaggerProps{Swagger: "2.0", Paths: kept.Paths, Parameters: kept.Parameters, Definitions: spec.Definitions{}}}
	part.Paths.Extensions = nil
	for name, definition := range kept.Definitions {
		part.Definitions[name] = ofKinds(definition, gv)
	}
	return part.MarshalJSON()
}

// depthOf returns how deep objects and arrays are nested in JSON.
func depthOf(data []byte) (deepest int) {
	depth, text, escaped := 0, false, false
	for _, b := range data {
		switch {
		case escaped:
			escaped = false
		case text:
			escaped, text = b == '\\', b != '"'
		case b == '"':
			text = true
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest
}

const extensionKind = "x-kubernetes-group-version-kind"

// ofKinds returns a definition without the kinds that it claims to be beside those of a version: clients look for the definition
// of a kind by them.
func ofKinds(definition spec.Schema, gv schema.GroupVersion) spec.Schema {
	kinds, ok := definition.Extensions[extensionKind]
	if !ok {
		return definition
	}
	all, _ := kinds.([]any)
	own := slices.DeleteFunc(slices.Clone(all), func(kind any) bool {
		k, _ := kind.(map[string]any)
		return k["group"] != gv.Group || k["version"] != gv.Version
	})
	definition.Extensions = maps.Clone(definition.Extensions)
	if delete(definition.Extensions, extensionKind); len(own) > 0 {
		definition.Extensions[extensionKind] = own
	}
	return definition
}

// asked returns the header of a request for OpenAPI v2.
func asked(tag string) http.Header {
	header := http.Header{"Accept": {"application/json"}}
	if tag != "" && !strings.HasPrefix(tag, madeHere) {
		header.Set("If-None-Match", tag)
	}
	return header
}
