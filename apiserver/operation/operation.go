package operation

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/managed"
	"github.com/sampan-io/sampan/apiserver/past"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// Operations performs requests about the objects of a store, on behalf of users. It is safe for concurrent use.
type Operations struct {
	store      Store
	catalog    *catalog.Catalog
	authorizer Authorizer
	admission  *admission.Chain
	managers   *managed.FieldManager // keeps managed fields
	issuers    map[catalog.Handler]IssueHandler
	computers  map[catalog.Handler]ComputeHandler
	past       *past.History
	audited    bool // decisions of the authorizer are added to the audit records of requests

	authorizations *authorizations
	admissions     admissions
	turns          turns // of the losers of writes to the same object
	definitions    definitionGuards
}

// New returns operations on a store.
func New(opts Options) (*Operations, error) {
	chain, err := admission.NewChain(opts.Admission)
	if err != nil {
		return nil, err
	}
	o := &Operations{
		store: opts.Store, catalog: opts.Catalog, authorizer: opts.Authorizer, admission: chain, managers: opts.Managers,
		issuers: opts.Issue, computers: opts.Compute, past: opts.Past, audited: opts.Audited, authorizations: newAuthorizations(),
	}
	o.definitions.operations = o
	chain.Measure(o.admissions.meter)
	return o, nil
}

// Describe implements [prometheus.Collector]: the metrics are those of authorization and admission.
func (o *Operations) Describe(to chan<- *prometheus.Desc) {
	o.authorizations.Describe(to)
	o.admissions.Describe(to)
}

// Collect implements [prometheus.Collector].
func (o *Operations) Collect(to chan<- prometheus.Metric) {
	o.authorizations.Collect(to)
	o.admissions.Collect(to)
}

// Verbs as authorization and discovery name them.
const (
	VerbGet              = "get"
	VerbList             = "list"
	VerbWatch            = "watch"
	VerbCreate           = "create"
	VerbUpdate           = "update"
	VerbPatch            = "patch"
	VerbDelete           = "delete"
	VerbDeleteCollection = "deletecollection"

	VerbOptions = "" // of OPTIONS and other methods, as upstream: only users with all verbs may use it
)

// A Target names the object, the objects or the subresource that a request is about, and its user.
type Target struct {
	User      *auth.User
	Kind      *catalog.Kind
	Sub       *catalog.Subresource // nil: the object itself
	Namespace string               // empty for cluster-scoped kinds and all namespaces
	Name      string               // empty for creations and collections
	Allowed   bool                 // the authorizer was asked already
	Local     bool                 // the caller is a part of this process
	Agent     string               // the User-Agent of the client: the manager of a write unless the request names one
	Inner     bool                 // it is a part of another request, which webhooks have seen
	At        string               // of a Get or List: the moment whose state is wanted, see package past; empty means now

	options   runtime.Object // of the request, as admission shows them; nil means none
	generated bool           // the server made the name
}

// SubName returns the name of the subresource; empty for the object itself.
func (t *Target) SubName() string {
	if t.Sub == nil {
		return ""
	}
	return t.Sub.Name
}

// Shape returns the shape of the subresource, or nil for the object itself.
func (t *Target) Shape() catalog.Shape {
	if t.Sub == nil {
		return nil
	}
	return t.Sub.Shape
}

// Body returns the kind of the bodies of the subresource, or nil if it is that of the object.
func (t *Target) Body() *catalog.Body {
	if t.Sub == nil {
		return nil
	}
	return t.Sub.Body()
}

// view returns the view that the subresource is, and whether it is one.
func (t *Target) view() (v catalog.View, ok bool) {
	v, ok = t.Shape().(catalog.View)
	return v, ok
}

// Key returns the key under which the object is stored.
func (t *Target) Key() string { return t.Kind.Key(t.Namespace, t.Name) }

func (t *Target) notFound() error { return apierrors.NewNotFound(t.Kind.GR(), t.Name) }

// A Result is an operation's answer: a stored object, or an object made
// for the answer.
type Result struct {
	Item    *codec.Item
	Made    runtime.Object
	Created bool
	At      store.Revision // of the state that the object is from; 0 means the newest one

	Warnings []string // for the client
}

// Object returns the decoded object, which is shared.
func (r Result) Object() runtime.Object {
	if r.Item != nil {
		return r.Item.Object()
	}
	return r.Made
}

// In returns the result in the version of the kind that the client uses.
func (r Result) In(ctx context.Context, kind *catalog.Kind) (Result, error) {
	if kind.Hub() == kind && !kind.Untyped() {
		return r, nil
	}
	var err error
	if r.Item != nil {
		r.Item, err = r.Item.In(ctx, kind)
	} else if obj, ok := r.Made.(catalog.Object); ok && obj.GetObjectKind().GroupVersionKind() == kind.Hub().GroupVersionKind {
		r.Made, err = kind.FromHub(obj) // and not the view that a subresource is
	}
	if err != nil {
		return r, StatusError(err)
	}
	return r, nil
}

// StatusError returns err if it is an API status error, and otherwise that of a fault of the server.
func StatusError(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// accept returns what a client has written, which belongs to the request, as an object of the hub.
func (t *Target) accept(body runtime.Object) (catalog.Object, error) {
	obj, ok := body.(catalog.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is not a %s", body, t.Kind.Kind))
	}
	hub, err := t.Kind.Accept(obj)
	switch {
	case err != nil && t.Kind.Untyped():
		return nil, err // the conversion webhook has failed, which is not a fault of the client
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return hub, nil
}

// Success is the answer to a request that shows no object.
func Success(details *metav1.StatusDetails) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  details,
	}
}

// done is the answer to a posted body of which nothing is stored, such as a binding. It has the code of a creation, as upstream's.
func done(warnings []string) Result {
	status := Success(nil)
	status.Code = codeCreated
	return Result{Made: status, Created: true, Warnings: warnings}
}

// Allow asks the authorizer, once for each request.
func (o *Operations) Allow(ctx context.Context, t *Target, verb string, where fields.Selector, name string) error {
	if t.Allowed {
		return nil
	}
	return o.Authorize(ctx, rbac.Attributes{
		User: t.User, Verb: verb,
		Group: t.Kind.Group, Version: t.Kind.Version, Resource: t.Kind.Resource, Subresource: t.SubName(),
		Namespace: t.Namespace, Name: name, Fields: where,
	})
}

// Authorize asks the authorizer, counts its decision and adds that to the audit record of the request. Its error is that of a
// request that is not allowed.
func (o *Operations) Authorize(ctx context.Context, a rbac.Attributes) error {
	start := time.Now()
	d := o.authorizer.Authorize(ctx, a)
	if o.audited {
		annotateDecision(ctx, d)
	}
	if !d.Allowed {
		o.authorizations.denied.observe(start)
		return rbac.Forbidden(a, d)
	}
	o.authorizations.allowed.observe(start)
	return nil
}

// Lookup returns the stored object that t names. A record that cannot be read is an error.
func (o *Operations) Lookup(ctx context.Context, t *Target) (*codec.Item, error) {
	item, err := o.lookupRecord(ctx, t)
	if err == nil && item.Fault() == nil && t.Kind.Untyped() {
		item, err = item.In(ctx, t.Kind.Hub())
	}
	if err == nil && item.Fault() != nil {
		return nil, t.unreadable(item.Fault())
	}
	return item, err
}

// lookupRecord returns what is stored where t points to, whether it can be read or not.
func (o *Operations) lookupRecord(ctx context.Context, t *Target) (*codec.Item, error) {
	rec, err := o.store.Get(t.Key())
	if errors.Is(err, store.ErrNotFound) && o.behind(ctx) {
		rec, err = o.store.Get(t.Key())
	}
	if err != nil {
		return nil, t.readFault(err)
	}
	return codec.ItemOf(t.Kind, rec.Key, rec.Value), nil
}

// commit makes a write whose fate must become known, even if the client goes away in
// between.
func (o *Operations) commit(ctx context.Context, w store.Write) (*codec.Item, error) {
	rec, err := o.store.Commit(context.WithoutCancel(ctx), w)
	if err != nil {
		return nil, err
	}
	return rec.Value.(*codec.Item), nil
}

// replace writes over a state that was read at the revision that w expects, and that admission let through with a. Its
// error is for the client, a [racedError] if another write came first, or a [store.ClaimError].
func (o *Operations) replace(ctx context.Context, t *Target, a *admission.Attributes, w store.Write) (*codec.Item, error) {
	o.turns.next(w.Key)
	item, err := o.commitAdmitted(ctx, t, a, w)
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return nil, &racedError{seen: w.Expect}
	case errors.Is(err, store.ErrClaimed):
		return nil, err
	case err != nil:
		return nil, writeFault(err)
	}
	return item, nil
}

// admitWhole asks all plug-ins about a write in which no object is validated in between.
func (o *Operations) admitWhole(ctx context.Context, a *admission.Attributes) error {
	if err := o.admission.Admit(ctx, a); err != nil {
		return err
	}
	return o.admission.Validate(ctx, a)
}

// now is the time as metadata keeps it: in whole seconds, in UTC, as it comes back from
// every encoding.
func now() metav1.Time { return metav1.NewTime(time.Now().UTC().Truncate(time.Second)) }

// checkNamespace makes the namespace of an incoming object that of the request.
func checkNamespace(t *Target, obj metav1.Object) error {
	switch obj.GetNamespace() {
	case t.Namespace:
		return nil
	case "":
		obj.SetNamespace(t.Namespace)
		return nil
	}
	if t.Namespace == "" { // a cluster-scoped object
		obj.SetNamespace("")
		return nil
	}
	return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
}

// checkName compares the name of an incoming object with that of the request.
func checkName(t *Target, obj metav1.Object) error {
	switch obj.GetName() {
	case t.Name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", t.Name))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), t.Name))
}

// checkVersion compares what an incoming object says of the version that it was made
// from with what is stored.
func checkVersion(t *Target, obj metav1.Object, old *codec.Item) error {
	if uid, have := obj.GetUID(), old.Object().GetUID(); uid != "" && uid != have {
		return apierrors.NewConflict(t.Kind.GR(), t.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, have)) //nolint:staticcheck // the words of Kubernetes
	}
	rv := obj.GetResourceVersion()
	if rv == "" || rv == "0" || rv == old.ResourceVersion() {
		return nil
	}
	if _, err := parseRevision(rv); err != nil {
		return invalid(t, field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), rv, "must be a resource version from this server")})
	}
	return modified(t.Kind.GR(), t.Name)
}

// refused is the answer to a request with a body in which errs were found. If the request ended meanwhile, rules of
// users may not have been evaluated to the end, and errs say nothing.
func refused(ctx context.Context, t *Target, errs field.ErrorList) error {
	if err := ctx.Err(); err != nil {
		return endedEarly(err)
	}
	return invalid(t, errs)
}

func invalid(t *Target, errs field.ErrorList) error {
	return catalog.Invalid(t.Kind.GroupKind(), t.Name, errs)
}

// checkOptions turns what is wrong with a request's options into an answer.
func checkOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// specChanged reports whether two objects differ in more than kind, metadata and
// status, which is what metadata.generation counts.
func specChanged(a, b catalog.Object) bool {
	if u, ok := a.(*unstructured.Unstructured); ok {
		return contentChanged(u, b.(*unstructured.Unstructured))
	}
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		switch x.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
			continue
		}
		if !equality.Semantic.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			return true
		}
	}
	return false
}

// contentChanged is specChanged for objects without a Go type. Their status counts as well: where it is a subresource, a
// write to the object leaves it as it was.
func contentChanged(a, b *unstructured.Unstructured) bool {
	for _, x := range [][2]*unstructured.Unstructured{{a, b}, {b, a}} {
		for name, value := range x[0].Object {
			switch name {
			case "apiVersion", "kind", "metadata":
				continue
			}
			other, found := x[1].Object[name]
			if !found || !equality.Semantic.DeepEqual(value, other) {
				return true
			}
		}
	}
	return false
}

// AdmitConnect asks admission about a stream with these options. It returns the warnings of plug-ins even with an
// error.
func (o *Operations) AdmitConnect(ctx context.Context, t *Target, item *codec.Item, options runtime.Object) (warnings []string, err error) {
	a := t.attributes(ctx, admission.Connect, false)
	a.Old, a.Connection = item.Object(), options
	defer a.Finish(false)
	err = o.admitWhole(ctx, &a)
	return a.Warnings, err
}

// String names the subject of a target, for messages.
func (t *Target) String() string {
	if t.Name == "" {
		return t.Kind.GR().String()
	}
	return fmt.Sprintf("%s %q", t.Kind.GR(), t.Name)
}

// Serves reports whether the kind or subresource has that verb on such a path.
func (t *Target) Serves(verb string) bool {
	if t.Sub != nil {
		return slices.Contains(t.Sub.Verbs, verb)
	}
	verbs := t.Kind.Verbs
	if verbs == nil {
		verbs = catalog.StandardVerbs
	}
	if !slices.Contains(verbs, verb) {
		return false
	}
	switch verb {
	case VerbCreate:
		return t.Name == "" && (t.Namespace != "" || !t.Kind.Namespaced)
	case VerbList:
		return t.Name == ""
	case VerbDeleteCollection:
		return t.Name == "" && (t.Namespace != "" || !t.Kind.Namespaced)
	case VerbUpdate, VerbPatch, VerbDelete, VerbGet:
		return t.Name != ""
	}
	return true
}

// WhileServed returns a context that is over when ctx is, or when the kind is not served any more.
func WhileServed(ctx context.Context, kind *catalog.Kind) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(kind.Life(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
