package rbac

import (
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// Attributes describe a request to the authorizer. Either Resource or Path is set.
type Attributes struct {
	User *auth.User

	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection for resources, and the HTTP method in lower case for
	// other paths.
	Verb string

	Group, Version, Resource, Subresource string

	Namespace string // empty for cluster-scoped resources and requests across all namespaces

	// Name is empty for lists and creations. A list or watch whose field
	// selector is metadata.name=NAME has that name, as in Kubernetes.
	Name string

	// Fields is the field selector that a list, watch or deletecollection is
	// narrowed by; nil means none. Nodes may list the pods that are bound to
	// them, and no others.
	Fields fields.Selector

	Path string // of a request that is for no resource: "/version"
}

// A Decision says whether something may be done. The zero Decision is no.
type Decision struct {
	Allowed bool
	Reason  string // for the user if refused beyond the plain fact, for the audit if allowed; may be empty
}
