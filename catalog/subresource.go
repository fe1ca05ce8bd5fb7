package catalog

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Subresource is served under the name of an object, its parent.
type Subresource struct {
	Name  string
	Verbs []string
	Shape Shape
}

// Body returns the kind of the subresource's bodies, or nil if it is the parent's.
func (s *Subresource) Body() *Body { return s.Shape.body() }

// BodyKind returns the kind of the bodies of a subresource of k.
func (k *Kind) BodyKind(s *Subresource) schema.GroupVersionKind {
	if b := s.Body(); b != nil {
		return b.Kind
	}
	return k.GroupVersionKind
}

// A Shape is the type of a subresource: a [Part], a [View], an [Action], an [Issue], an [Evict] or a
// [Stream].
type Shape interface{ body() *Body }

// A Body is a kind that bodies of a subresource have and that is not the parent's.
type Body struct {
	Kind schema.GroupVersionKind
	New  func() runtime.Object
	// Versions are further versions of Kind, with the same fields, in which clients may
	// write a body ("eviction").
	Versions []schema.GroupVersion
}

func (b *Body) body() *Body { return b }

// A Part is a part of the parent, read and written as the parent's kind ("status").
type Part struct {
	// Prepare carries everything over from old into obj that an update through
	// this subresource does not change.
	Prepare func(obj, old Object)
	// Keeps lists further fields that Prepare carries over, beside those of every
	// subresource of that name: see [Kind.LeftAlone].
	Keeps []string
	// Only lists the fields that can change through this subresource if these are few; an apply
	// owns no others. A "*" is any item of a list: "spec.containers.*.resources".
	Only []string
	// Counts says that a change of the spec through this subresource counts in
	// metadata.generation.
	Counts bool
	// Validate is as in Kind, for updates through this subresource.
	Validate func(ctx context.Context, obj, old Object) field.ErrorList
	// Warn is as in Kind, for updates through this subresource.
	Warn func(obj, old Object) []string
}

func (Part) body() *Body { return nil }

// A View shows and changes the parent in another kind ("scale").
type View struct {
	*Body
	// Get returns the view of parent. A result for a parent that has none is only for a patch, and for Apply after it.
	Get func(parent Object) runtime.Object
	// Absent returns why parent cannot be read through the view, as an API status error, or nil. Nil means that it always can.
	Absent func(parent Object) error
	// Apply changes parent (a copy) to what body says. Its errors are API status errors.
	Apply func(parent Object, body runtime.Object) error
	// Validate checks the changed parent.
	Validate func(ctx context.Context, obj, old Object) field.ErrorList
}

// An Action is a body that can only be posted, and changes the parent without counting in its
// metadata.generation ("binding").
type Action struct {
	*Body
	// Alias is a resource below which the body can be posted as well if it names the parent
	// ("bindings"). Empty means none.
	Alias string
	// Apply changes parent (a copy) as body says. Its errors are API status errors.
	Apply func(parent Object, body runtime.Object) error
}

// An Issue is a body that is posted and answered, and changes nothing ("token").
type Issue struct {
	*Body
	Handler Handler
}

// An Evict is the body that asks for the deletion of a pod, which happens if the pod's disruption
// budget allows it ("eviction").
type Evict struct{ *Body }

// A Stream is a connection that a handler serves ("log").
type Stream struct {
	*Body   // of the options, in discovery; nil means the parent's kind
	Handler Handler
	// Ported says that the path names the parent as NAME, NAME:PORT or SCHEME:NAME:PORT.
	Ported bool
	// Creates says that a request needs permission for the verb create even if its method is GET, as WebSocket's is.
	Creates bool
}

// A Handler names a function that the API server is given in its options: it serves a [Stream],
// makes the answer of an [Issue] or of a kind with an [Kind.Answer], or the objects of a kind that is [Kind.Computed].
type Handler string

// The handlers of the catalog's kinds.
const (
	PodLog              Handler = "pods/log"
	PodExec             Handler = "pods/exec"
	PodAttach           Handler = "pods/attach"
	PodPortForward      Handler = "pods/portforward"
	PodProxy            Handler = "pods/proxy"
	ServiceProxy        Handler = "services/proxy"
	NodeProxy           Handler = "nodes/proxy"
	ServiceAccountToken Handler = "serviceaccounts/token"
	OwnAccess           Handler = "selfsubjectaccessreviews"
	OwnRules            Handler = "selfsubjectrulesreviews"
	OwnIdentity         Handler = "selfsubjectreviews"
	Access              Handler = "subjectaccessreviews"
	LocalAccess         Handler = "localsubjectaccessreviews"
	TokenIdentity       Handler = "tokenreviews"
	PodUsage            Handler = "pods.metrics.k8s.io"
	NodeUsage           Handler = "nodes.metrics.k8s.io"
	ComponentHealth     Handler = "componentstatuses"
)
