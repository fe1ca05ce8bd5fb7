package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// An Operation is the effect of a request on an object.
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
	Kind        *catalog.Kind // of the resource in the URL, not of a subresource's body, in the version in which it is stored
	Subresource string

	// Served is Kind in the version that the request names; nil means Kind itself. [Attributes.Requested] returns it.
	Served *catalog.Kind

	// Generated says that the server made Name of metadata.generateName: upstream shows such a name to no plug-in
	// before the object is complete.
	Generated bool

	Namespace string // empty for cluster-scoped kinds
	Name      string // of the object; may be empty on creation if only generateName is set
	User      *auth.User

	// Object is the object to store; of a subresource with a body of its own
	// ("binding", "token") that body. It belongs to the request: plug-ins may
	// change it. Nil for Delete and Connect.
	Object catalog.Object

	// Connection has the options of a Connect (a PodExecOptions), or is nil if the subresource has none.
	Connection runtime.Object

	// Options are those of the request, of meta.k8s.io/v1 with their kind and version: CreateOptions, UpdateOptions,
	// PatchOptions or DeleteOptions. Nil means none. They are shared.
	Options runtime.Object

	// Old is the stored object, shared and not to be changed. Nil for Create.
	Old catalog.Object

	DryRun bool

	// Inner says that webhooks and policies are not asked: the write is a part of another request, which they have seen (the
	// deletion by an eviction), or of the start of the server.
	Inner bool

	// Changed is set by a [Reinvoker] that changed the object, in place. The chain then asks all mutators up to the
	// last Reinvoker a second time, with Round 1.
	Changed bool
	Round   int

	// Kept is the state of plug-ins, by their name, from one round to the next.
	Kept map[string]any

	// Audit receives annotations for the audit event of the request; its methods do nothing if it is nil.
	Audit *audit.Record

	// Guards are the states of other objects on which the write rests: plug-ins add to them.
	Guards []Guard

	// Charge is the addition of the write to quotas; nil means none.
	Charge *Charge

	// Warnings are sentences for the client, whatever becomes of the write. Plug-ins and the server add to them as they
	// arise.
	Warnings []string

	// Done is called by the API server, last added first, exactly once for
	// every request that reached a plug-in that added to it: with true after
	// the write was committed and readers can see it, with false if there will
	// be no write (also because a later plug-in or validation refused it, or
	// because it is a dry run).
	Done []func(committed bool)
}

// Requested returns the kind in the version that the request names.
func (a *Attributes) Requested() *catalog.Kind {
	if a.Served != nil {
		return a.Served
	}
	return a.Kind
}

// BodyKind returns the kind of the request's bodies in a version of its resource: of the object, of the body of the
// subresource ("scale"), or of the options of a connection.
func (a *Attributes) BodyKind(in *catalog.Kind) schema.GroupVersionKind {
	if sub := in.Subresource(a.Subresource); sub != nil {
		return in.BodyKind(sub)
	}
	return in.GroupVersionKind
}

// AdmissionNamespace is the namespace as webhooks and policies see it: that of a Namespace object is its own name.
func (a *Attributes) AdmissionNamespace() string {
	if a.Kind.GR() == (schema.GroupResource{Resource: "namespaces"}) {
		return a.Name
	}
	return a.Namespace
}

// AdmissionName is the name as webhooks and policies see it: empty if the server will make it of generateName.
func (a *Attributes) AdmissionName() string {
	if a.Generated {
		return ""
	}
	return a.Name
}

// New returns the object of the request as webhooks and policies see it: a [catalog.Object], the options of a connection, or nil.
func (a *Attributes) New() runtime.Object {
	switch {
	case a.Object != nil:
		return a.Object
	case a.Connection != nil:
		return a.Connection
	}
	return nil
}

// Previous returns what is stored as webhooks and policies see it: in the kind of the request's body, and nil where a body only asks for
// something, as with a binding, an eviction and a connection.
func (a *Attributes) Previous() runtime.Object {
	if a.Old == nil || a.Operation == Create || a.Operation == Connect {
		return nil
	}
	if sub := a.Kind.Subresource(a.Subresource); sub != nil {
		if v, ok := sub.Shape.(catalog.View); ok {
			shown := v.Get(a.Old)
			shown.GetObjectKind().SetGroupVersionKind(v.Kind)
			return shown
		}
	}
	return a.Old
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

// A Plugin is a [Mutator], a [Validator] or both. It is safe for concurrent use.
type Plugin interface {
	Name() string
}

// A Mutator changes or refuses writes before the object is validated.
type Mutator interface {
	Plugin

	// Admit may change a.Object, add to a.Done, or refuse with an API status
	// error. A plug-in that is not concerned returns nil.
	//
	// When the API server tries a write again because the object changed in
	// the meantime, it finishes these attributes with false and makes new ones.
	Admit(ctx context.Context, a *Attributes) error
}

// A Reinvoker is a mutator that calls others, which may need to see what later ones changed: see [Attributes.Changed].
type Reinvoker interface {
	Mutator
	Reinvokes()
}

// A Validator refuses writes after the object was validated, when nothing changes it any more.
type Validator interface {
	Plugin

	// Validate may add to a.Warnings and a.Done, or refuse as Admit does. It does not change a.Object.
	Validate(ctx context.Context, a *Attributes) error
}

// A Chain has the plug-ins of a server, in the order in which they are asked.
type Chain struct {
	mutators   []asked[Mutator]
	again      int // how many of the mutators are asked a second time if one of them wants it
	validators []asked[Validator]
	measured   bool
	admit      Meter // of all mutators together
	validate   Meter // of all validators together
}

// An asked plug-in is one with its meter, which is nil if the chain is not measured.
type asked[P Plugin] struct {
	plugin P
	meter  Meter
}

// A Meter records how long a plug-in took for one write, or all plug-ins together. It must not block.
type Meter func(operation Operation, rejected bool, took time.Duration)

// Measure makes the chain report what its plug-ins take to meters: one for each plug-in that admits or validates, and one without
// a name for all of them together. It is called before the chain is used.
func (c *Chain) Measure(meter func(plugin string, validates bool) Meter) {
	c.measured = true
	c.admit, c.validate = meter("", false), meter("", true)
	for i := range c.mutators {
		c.mutators[i].meter = meter(c.mutators[i].plugin.Name(), false)
	}
	for i := range c.validators {
		c.validators[i].meter = meter(c.validators[i].plugin.Name(), true)
	}
}

// ask calls the plug-ins one after the other, up to the first that refuses. It reports how long each of them took, and returns how
// long all did; without a start nothing is measured.
func ask[P Plugin](plugins []asked[P], a *Attributes, start time.Time, call func(P) error) (took time.Duration, err error) {
	if start.IsZero() {
		for i := range plugins {
			if err := call(plugins[i].plugin); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}
	last := time.Since(start)
	for i := range plugins {
		err = call(plugins[i].plugin)
		now := time.Since(start)
		plugins[i].meter(a.Operation, err != nil, now-last)
		if last = now; err != nil {
			break
		}
	}
	return last, err
}

// start returns when the plug-ins are asked, or nothing if they are not measured.
func (c *Chain) start() (now time.Time) {
	if c.measured {
		now = time.Now()
	}
	return now
}

// NewChain returns the chain of the plug-ins, in their order. A plug-in that is neither a
// [Mutator] nor a [Validator] is an error.
func NewChain(plugins []Plugin) (*Chain, error) {
	c := &Chain{}
	for _, p := range plugins {
		m, mutates := p.(Mutator)
		v, validates := p.(Validator)
		if mutates {
			c.mutators = append(c.mutators, asked[Mutator]{plugin: m})
			if _, ok := p.(Reinvoker); ok {
				c.again = len(c.mutators)
			}
		}
		if validates {
			c.validators = append(c.validators, asked[Validator]{plugin: v})
		}
		if !mutates && !validates {
			return nil, fmt.Errorf("admission: plug-in %s neither admits nor validates", p.Name())
		}
	}
	return c, nil
}

// Mutates reports whether there is a plug-in that may change objects.
func (c *Chain) Mutates() bool { return len(c.mutators) > 0 }

// Admit asks the mutators, those up to the last [Reinvoker] twice if one of these wants it. The first refusal is its
// error.
func (c *Chain) Admit(ctx context.Context, a *Attributes) error {
	a.Changed, a.Round = false, 0
	call := func(p Mutator) error { return p.Admit(ctx, a) }
	start := c.start()
	took, err := ask(c.mutators[:c.again], a, start, call)
	if err == nil && a.Changed {
		a.Round = 1
		took, err = ask(c.mutators[:c.again], a, start, call)
	}
	if err == nil {
		took, err = ask(c.mutators[c.again:], a, start, call)
	}
	if c.measured {
		c.admit(a.Operation, err != nil, took)
	}
	return err
}

// Validate asks the validators. The first refusal is its error.
func (c *Chain) Validate(ctx context.Context, a *Attributes) error {
	took, err := ask(c.validators, a, c.start(), func(p Validator) error { return p.Validate(ctx, a) })
	if c.measured {
		c.validate(a.Operation, err != nil, took)
	}
	return err
}

// A Reader reads stored objects at the newest revision, from memory. It returns shared objects that
// must not be changed. It does not check permissions.
type Reader interface {
	// Get returns the object, or an API status error (NotFound).
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)

	// Await is Get, and blocks until the object exists. The error is NotFound if ctx is over before.
	Await(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)

	// List returns the objects in the namespace (empty: all) whose fields, by
	// the names of Kind.Fields, have these values (nil: all objects). A field
	// in Kind.Indexed is answered from the index.
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error)

	// Holders returns the objects of all namespaces that hold something, in the
	// words of Kind.Sole: one, or none. It is answered from the index, which has
	// no records that cannot be read: these hold nothing.
	Holders(ctx context.Context, gvr schema.GroupVersionResource, what string) ([]catalog.Object, error)

	// Changes returns the changes of the objects in a namespace since a revision, without waiting for any; 0 asks for
	// all objects. Objects that cannot be read do not exist for it.
	Changes(ctx context.Context, gvr schema.GroupVersionResource, namespace string, since store.Revision) (Changes, error)
}
