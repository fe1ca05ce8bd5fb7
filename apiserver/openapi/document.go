package openapi

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The parts of an OpenAPI v3 document that are used here, as JSON has them.
type (
	document struct {
		OpenAPI    string              `json:"openapi"`
		Info       info                `json:"info"`
		Paths      map[string]pathItem `json:"paths"`
		Components components          `json:"components"`
	}

	info struct {
		Title   string `json:"title"`
		Version string `json:"version"`
	}

	components struct {
		Schemas    map[string]*model     `json:"schemas"`
		Parameters map[string]*parameter `json:"parameters"`
	}

	// pathItem has the operations of one path, by lower-case method.
	pathItem map[string]any

	operation struct {
		Tags        []string            `json:"tags,omitempty"`
		Description string              `json:"description,omitempty"`
		OperationID string              `json:"operationId"`
		Parameters  []*parameter        `json:"parameters,omitempty"`
		RequestBody *body               `json:"requestBody,omitempty"`
		Responses   map[string]response `json:"responses"`
		Action      string              `json:"x-kubernetes-action,omitempty"`
		Kind        *kindName           `json:"x-kubernetes-group-version-kind,omitempty"`
	}

	parameter struct {
		Ref         string `json:"$ref,omitempty"`
		Name        string `json:"name,omitempty"`
		In          string `json:"in,omitempty"`
		Description string `json:"description,omitempty"`
		Required    bool   `json:"required,omitempty"`
		Schema      *model `json:"schema,omitempty"`
	}

	body struct {
		Content  map[string]media `json:"content"`
		Required bool             `json:"required,omitempty"`
	}

	response struct {
		Description string           `json:"description"`
		Content     map[string]media `json:"content,omitempty"`
	}

	media struct {
		Schema *model `json:"schema"`
	}

	// model is a schema.
	model struct {
		Ref           string            `json:"$ref,omitempty"`
		Description   string            `json:"description,omitempty"`
		Type          string            `json:"type,omitempty"`
		Format        string            `json:"format,omitempty"`
		Enum          []string          `json:"enum,omitempty"`
		Properties    map[string]*model `json:"properties,omitempty"`
		Required      []string          `json:"required,omitempty"`
		Items         *model            `json:"items,omitempty"`
		Additional    *model            `json:"additionalProperties,omitempty"`
		AllOf         []*model          `json:"allOf,omitempty"`
		OneOf         []*model          `json:"oneOf,omitempty"`
		Kinds         []kindName        `json:"x-kubernetes-group-version-kind,omitempty"`
		PatchMergeKey string            `json:"x-kubernetes-patch-merge-key,omitempty"`
		PatchStrategy string            `json:"x-kubernetes-patch-strategy,omitempty"`
		ListType      string            `json:"x-kubernetes-list-type,omitempty"`
		ListKeys      []string          `json:"x-kubernetes-list-map-keys,omitempty"`
		MapType       string            `json:"x-kubernetes-map-type,omitempty"`
		Default       json.RawMessage   `json:"default,omitempty"`

		opaque   bool // any value, changed as a whole
		unmarked bool // upstream does not say of its lists that they are atomic, which they are anyway

		custom *spec.Schema // of a kind without a Go type: what JSON says instead
	}

	// kindName is written with an empty group, too: readers compare it whole.
	kindName struct {
		Group   string `json:"group"`
		Kind    string `json:"kind"`
		Version string `json:"version"`
	}
)

func nameOf(gvk schema.GroupVersionKind) kindName {
	return kindName{gvk.Group, gvk.Kind, gvk.Version}
}

// schemaRef is the start of a reference to a model.
const schemaRef = "#/components/schemas/"

func refTo(name string) *model { return &model{Ref: schemaRef + name} }
