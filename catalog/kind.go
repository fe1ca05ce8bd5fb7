package catalog

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// An Object is an API object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// A Kind describes one served resource, and the version in which its objects are stored. Functions may be nil where
// there is nothing to do. They are called from many goroutines at once, must not
// keep the objects they are given, and change only the one that is said to be
// theirs to change.
type Kind struct {
	schema.GroupVersionKind

	Resource   string // plural, lower case: "pods"
	Singular   string // "pod"
	ShortNames []string
	Categories []string // "all"
	Namespaced bool

	// Verbs that are served, as discovery lists them; nil means all of
	// StandardVerbs.
	Verbs []string

	New     func() Object
	NewList func() runtime.Object // nil if objects of the kind can only be posted: see Answer

	// Conditional says that an update must name the resource version that it replaces.
	Conditional bool

	// CreatedByUpdate says that an update of an object that does not exist creates it, if the user may create it.
	CreatedByUpdate bool

	// Default fills in the fields that were left out. It runs on every object
	// that comes in, and is idempotent, so that it can run once more after
	// admission has changed the object. What lies behind the pointers, maps and
	// slices of an object that has been defaulted it does not write to.
	Default func(obj Object)

	// Prepare makes obj fit to be stored: on creation (old is nil) it drops
	// the status and sets the server's own fields; on an update it carries
	// over the parts that this endpoint does not change (the status) from old. It runs
	// after Default and before admission; name, namespace and UID are there.
	// Generation is not its job: see Generation.
	Prepare func(obj, old Object)

	// Keeps lists the fields, beside the status, that Prepare carries over on each update, such as "spec": an apply does
	// not own them.
	Keeps []string

	// Validate returns everything that is wrong with obj, on an update
	// (old is not nil) including changes of immutable fields. It runs after
	// admission. Object metadata is checked by the caller: see [ValidateMeta]. The result says nothing if ctx, that of the
	// request, is over: rules that users write may take long.
	Validate func(ctx context.Context, obj, old Object) field.ErrorList

	// Warn returns warnings about obj, which is valid: which of
	// its fields are out of date, ambiguous, or without effect here. old is nil in a creation. Updates that change nothing
	// beside metadata and status are not asked about if the kind counts its generation. Nil means nothing.
	Warn func(obj, old Object) []string

	// ValidateName returns the faults of a name or, with prefix, a
	// generateName; nil means a DNS subdomain (RFC 1123).
	ValidateName func(name string, prefix bool) []string

	// Generation says that the kind counts metadata.generation: it starts at 1
	// and rises with each change outside metadata and status.
	Generation bool

	// Counted returns the part of the metadata with whose change the generation
	// rises as well; nil means none. Of a Deployment it is the annotations, which
	// its sets get; of an EndpointSlice the labels, which say whose it is.
	Counted func(obj Object) map[string]string

	// Columns of a table after Name, in the order in which kubectl prints them;
	// Age is not added by itself. The table begins with a Name column of its own
	// unless one of Columns has the name "Name" and the Format "name" (events print theirs last).
	Columns []Column

	// Fields that field selectors may name beside metadata.name and
	// metadata.namespace, and their values.
	Fields map[string]func(obj Object) string

	Subresources []Subresource

	// Versions are further versions in which the objects are served. The kind itself is the
	// version in which they are stored.
	Versions []Version

	// Unserved says that the version in which the objects are stored is not served: only Versions are.
	Unserved bool

	// Deprecated is the warning that every request for the kind gets. Empty means that of the Go type.
	Deprecated string

	// The differences of its objects from plain stored ones; zero values mean none.
	Unstored
	Storing
	Lifecycle
	Defined

	origin // set by New
}

// Unstored says that objects of a kind are not stored: they are answered, or computed. At most one of the fields is set.
type Unstored struct {
	// Answer names the handler that answers the creation of an object of the kind, which
	// is not stored: Verbs has only "create". Empty means that objects are stored, or Computed.
	Answer Handler

	// Computed says how objects are made when they are read, and that none is stored: Verbs has only "get" and "list".
	Computed *Computed
}

// Storing says how the store keeps the objects of a kind.
type Storing struct {
	// Volatile reports whether a crash may lose the write that replaces old with obj: old is
	// nil in a creation and obj is nil in a deletion. Nil means that no write may be lost.
	// Only Events, and renewals of Leases, may.
	Volatile func(obj, old Object) bool

	// Expires says that objects are deleted some time after their last write: the API server's
	// --event-ttl. Event alone has it.
	Expires bool

	// Bulky says that a decoded object takes many times the memory of its encoding, and is rarely read: decoded objects are
	// not kept. CustomResourceDefinition alone is.
	Bulky bool

	// Indexed lists the Fields for which the store keeps an index.
	Indexed []string

	// Sole returns what belongs to the object alone, beside its name: no other object,
	// of whatever kind, is stored that has one of these as well, and the store keeps an
	// index of them. Nil means nothing. Services have it for their addresses and node
	// ports, IPAddresses, which may take an address from Services, and Nodes for their pod networks.
	Sole func(obj Object) []string
}

// Lifecycle says what happens between the request for the deletion of an object and its end.
type Lifecycle struct {
	// Grace returns how many seconds the object goes on existing after a
	// deletion is asked for, given what the request says (nil: nothing); 0 means
	// that it goes at once. Nil means always at once. Pod alone uses it.
	Grace func(obj Object, asked *int64) int64

	// Terminating changes obj, a copy, when its deletion is asked for and it
	// does not go at once. Nil means nothing beyond the metadata. Namespace
	// alone uses it (its phase).
	Terminating func(obj Object)

	// Held says that an object whose deletion was asked for stays although it
	// has no metadata.finalizers. Nil means never. Namespace alone uses it (its
	// spec.finalizers); the update that ends it removes the object.
	Held func(obj Object) bool

	// DefaultPropagation is how dependents are treated when a DELETE does not
	// say; empty means background.
	DefaultPropagation metav1.DeletionPropagation

	// AnswersDeleted says that a DELETE after which the object is gone is answered with its last state, as
	// upstream does for some kinds, and not with a Status.
	AnswersDeleted bool
}

// Defined is what only kinds have that a CustomResourceDefinition defines, and that definition itself.
type Defined struct {
	// Coerce fits obj, which was just decoded, to the schema of its kind: it drops unknown fields and
	// malformed ones. It runs before Default. Nil means that decoding has done it, as for Go types: only custom
	// resources have it.
	Coerce func(obj Object, c Coercion) (unknown []string, err error)

	// Convert returns objs, which may be of several versions of the kind, in version to and in their order. It may call a
	// webhook. It does not change objs; the results may share memory with them. Kinds without a Go type, and only these,
	// have it: their objects are *unstructured.Unstructured, and are stored in the version in which they were written.
	Convert func(ctx context.Context, objs []Object, to schema.GroupVersion) ([]Object, error)

	// Schema returns the OpenAPI schema of the objects in this version. The caller may change it. Nil means that it follows
	// from the Go type, or that the kind has none.
	Schema func() *spec.Schema

	// SchemaDigest names what Schema returns: equal digests mean equal schemas. It is set if Schema is.
	SchemaDigest string

	// AnyFinalizer says that finalizers need no domain. It holds for custom resources and their definitions.
	AnyFinalizer bool
}

// An origin says where a kind comes from: of which other one it is a version, and how long the catalog has it.
type origin struct {
	hub     *Kind           // of which this is a further version, or nil
	version *Version        // that this is
	further []*Kind         // the kind in its Versions; set by [New]
	life    context.Context //nolint:containedctx // it ends when the catalog does not have the kind any more; nil if it always has
	retire  context.CancelFunc

	deprecation string // set by [New]
}

// A Coercion says where an object for [Kind.Coerce] comes from.
type Coercion struct {
	// Strict asks for the paths of the unknown fields.
	Strict bool
	// Stored says that the object comes from the store, where an older definition may have admitted it: malformed
	// metadata is dropped. Otherwise it is an error, the client's fault.
	Stored bool
	// Applied says that the object is the result of a server-side apply, or in another version than the hub its
	// configuration. A null where the schema has neither a default nor allows null stays in the hub, for validation to
	// refuse as upstream does; in another version it is the error. Otherwise it is dropped.
	Applied bool
	// Sub is the name of the subresource of the apply, or empty.
	Sub string
}

// A Column is one column of a table.
type Column struct {
	metav1.TableColumnDefinition

	// Cell returns a string, an int64 or a bool; columns of custom resources also a float64, or nil for a value that is
	// missing.
	Cell func(obj Object, now time.Time) any
}

// LeftAlone returns the fields that writes to the object itself (sub is nil) or through a
// subresource do not change, such as "metadata.labels". An apply does not own them.
func (k *Kind) LeftAlone(sub *Subresource) []string {
	if sub != nil {
		part, ok := sub.Shape.(Part)
		if !ok {
			return nil
		}
		if sub.Name == "status" {
			return append([]string{"spec"}, part.Keeps...)
		}
		return part.Keeps
	}
	if k.Subresource("status") != nil {
		return append([]string{"status"}, k.Keeps...)
	}
	return k.Keeps
}

// Only returns the fields that writes through the subresource can change, or nil if all but those
// of [Kind.LeftAlone] can: see [Part].
func (s *Subresource) Only() []string {
	if s == nil {
		return nil
	}
	part, _ := s.Shape.(Part)
	return part.Only
}

// A Computed says that the objects of a kind are made when they are read.
type Computed struct {
	// From is the stored resource from whose objects they are made: one of the same namespace and name from each, or none.
	// Selectors of a list select those objects. Empty means that they are made from no objects, and selectors select
	// the results.
	From schema.GroupVersionResource

	// Handler makes them.
	Handler Handler
}

// Answered reports whether objects of the kind are not stored: see Answer and Computed.
func (k *Kind) Answered() bool { return k.Answer != "" || k.Computed != nil }

// Untyped reports whether objects of the kind have no Go type, as those of custom resources: see Convert.
func (k *Kind) Untyped() bool { return k.Hub().Convert != nil }

// Life returns a context that is over when the catalog does not have the kind any more: another has replaced it, or none.
// That of a kind that always stays does not end.
func (k *Kind) Life() context.Context {
	if life := k.Hub().life; life != nil {
		return life
	}
	return context.Background() //nolint:forbidigo // what never ends
}

// StandardVerbs are the verbs of a kind that says nothing else.
var StandardVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// Loses reports whether a crash may lose the write that replaces old with obj: see
// [Kind.Volatile].
func (k *Kind) Loses(obj, old Object) bool { return k.Volatile != nil && k.Volatile(obj, old) }

// GVR returns the resource as clients name it.
func (k *Kind) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// GR returns the resource without its version.
func (k *Kind) GR() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// Prefix returns the prefix of the storage keys of the kind, or of those of one
// namespace if that is not empty: "pods/", "pods/default/", "jobs.batch/". It is the same for all
// versions of a kind.
func (k *Kind) Prefix(namespace string) string { return k.key(namespace, "") }

// key joins its parts at once: it is made several times for each request.
func (k *Kind) key(namespace, name string) string {
	group, dot, slash := k.Hub().Group, "", ""
	if group != "" {
		dot = "."
	}
	if namespace != "" {
		slash = "/"
	}
	return k.Resource + dot + group + "/" + namespace + slash + name
}

// Key returns the storage key of an object; namespace is ignored for cluster
// kinds.
func (k *Kind) Key(namespace, name string) string {
	if !k.Namespaced {
		namespace = ""
	}
	return k.key(namespace, name)
}
