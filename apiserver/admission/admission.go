package admission

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
)

// An Operation is what a request does to an object.
type Operation string

// The operations that plug-ins see.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE" // also patches
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes describe one write before it is made.
type Attributes struct {
	Operation   Operation
	Kind        *catalog.Kind // of the resource in the URL, not of a subresource's body
	Subresource string
	Namespace   string // empty for cluster-scoped kinds
	Name        string // of the object; may be empty on creation if only generateName is set
	User        *auth.User

	// Object is what shall be stored; of a subresource with a body of its own
	// ("binding", "token") that body. It belongs to the request: plug-ins may
	// change it. Nil for Delete and Connect.
	Object catalog.Object

	// Old is what is stored now, shared and not to be changed. Nil for Create.
	Old catalog.Object

	DryRun bool

	// Warnings are sentences for the client if the write is made, which plug-ins add.
	Warnings []string

	// Done is called by the API server, last added first, exactly once for
	// every request that reached a plug-in that added to it: with true after
	// the write was committed and readers can see it, with false if there will
	// be no write (also because a later plug-in or validation refused it, or
	// because it is a dry run).
	Done []func(committed bool)
}

// Finish calls the Done functions and empties the list. The API server calls it
// once the fate of the write is known.
func (a *Attributes) Finish(committed bool) {
	done := a.Done
	a.Done = nil
	for _, d := range slices.Backward(done) {
		d(committed)
	}
}

// A Plugin changes or refuses writes. It is safe for concurrent use.
type Plugin interface {
	Name() string

	// Admit may change a.Object, add to a.Done, or refuse with an API status
	// error. A plug-in that is not concerned returns nil.
	//
	// When the API server tries a write again because the object changed in
	// the meantime, it finishes these attributes with false and makes new ones.
	Admit(ctx context.Context, a *Attributes) error
}

// A Reader reads stored objects at the newest revision, from memory. It returns shared objects that
// must not be changed. It does not check permissions.
type Reader interface {
	// Get returns the object, or an API status error (NotFound).
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)

	// List returns the objects in the namespace (empty: all) whose fields, by
	// the names of Kind.Fields, have these values (nil: all objects). A field
	// in Kind.Indexed is answered from the index.
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error)

	// Holders returns the objects of all namespaces that hold something, in the
	// words of Kind.Sole: one, or none. It is answered from the index.
	Holders(ctx context.Context, gvr schema.GroupVersionResource, what string) ([]catalog.Object, error)
}
