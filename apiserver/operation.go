package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
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
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// operations performs requests about objects, on behalf of users. It is safe for concurrent use.
type operations struct {
	store      objectStore
	catalog    *catalog.Catalog
	authorizer Authorizer
	admission  *admission.Chain
	managers   *managed.FieldManager // keeps managed fields
	issuers    map[catalog.Handler]IssueHandler
	computers  map[catalog.Handler]ComputeHandler
	audited    bool // decisions of the authorizer are added to the audit records of requests

	authorizations *authorizations
	admissions     admissions
	turns          turns // of the losers of writes to the same object

	// creations is held for reading by a creation of a custom resource from its last look at whether the kind is served until it is
	// stored. After the kind has ended (see catalog.Catalog.End), holding it for writing once waits for all of them.
	creations sync.RWMutex
}

// newOperations returns operations on a store.
func newOperations(opts operationOptions) (*operations, error) {
	chain, err := admission.NewChain(opts.Admission)
	if err != nil {
		return nil, err
	}
	o := &operations{
		store: opts.Store, catalog: opts.Catalog, authorizer: opts.Authorizer, admission: chain, managers: opts.Managers,
		issuers: opts.Issue, computers: opts.Compute, audited: opts.Audited, authorizations: newAuthorizations(),
	}
	chain.Measure(o.admissions.meter)
	return o, nil
}

// Describe implements [prometheus.Collector]: the metrics are those of authorization and admission.
func (o *operations) Describe(to chan<- *prometheus.Desc) {
	o.authorizations.Describe(to)
	o.admissions.Describe(to)
}

// Collect implements [prometheus.Collector].
func (o *operations) Collect(to chan<- prometheus.Metric) {
	o.authorizations.Collect(to)
	o.admissions.Collect(to)
}

// Verbs as authorization and discovery name them.
const (
	verbGet              = "get"
	verbList             = "list"
	verbWatch            = "watch"
	verbCreate           = "create"
	verbUpdate           = "update"
	verbPatch            = "patch"
	verbDelete           = "delete"
	verbDeleteCollection = "deletecollection"

	verbOptions = "" // of OPTIONS and other methods, as upstream: only users with all verbs may use it
)

// A target is what an operation is about, and for whom.
type target struct {
	user      *auth.User
	kind      *catalog.Kind
	sub       *catalog.Subresource // nil: the object itself
	namespace string               // empty for cluster-scoped kinds and all namespaces
	name      string               // empty for creations and collections
	allowed   bool                 // the handler has asked the authorizer already
	local     bool                 // the caller is a part of this process
	agent     string               // the User-Agent of the client: the manager of a write unless the request names one
	options   runtime.Object       // of the request, as admission shows them; nil means none
	generated bool                 // the server made the name
	inner     bool                 // it is a part of another request, which webhooks have seen
}

func (t *target) subName() string {
	if t.sub == nil {
		return ""
	}
	return t.sub.Name
}

// shape returns the shape of the subresource, or nil for the object itself.
func (t *target) shape() catalog.Shape {
	if t.sub == nil {
		return nil
	}
	return t.sub.Shape
}

// body returns the kind of the bodies of the subresource, or nil if it is that of the object.
func (t *target) body() *catalog.Body {
	if t.sub == nil {
		return nil
	}
	return t.sub.Body()
}

// view returns the view that the subresource is, and whether it is one.
func (t *target) view() (v catalog.View, ok bool) {
	v, ok = t.shape().(catalog.View)
	return v, ok
}

func (t *target) key() string { return t.kind.Key(t.namespace, t.name) }

func (t *target) notFound() error { return apierrors.NewNotFound(t.kind.GR(), t.name) }

// A result is what an operation answers with: a stored object, or an object made
// for the answer.
type result struct {
	item    *codec.Item
	obj     runtime.Object
	created bool

	warnings []string // for the client
}

// object returns the decoded object, which is shared.
func (r result) object() runtime.Object {
	if r.item != nil {
		return r.item.Object()
	}
	return r.obj
}

// in returns the result in the version of the kind that the client uses.
func (r result) in(ctx context.Context, kind *catalog.Kind) (result, error) {
	if kind.Hub() == kind && !kind.Untyped() {
		return r, nil
	}
	var err error
	if r.item != nil {
		r.item, err = r.item.In(ctx, kind)
	} else if obj, ok := r.obj.(catalog.Object); ok && obj.GetObjectKind().GroupVersionKind() == kind.Hub().GroupVersionKind {
		r.obj, err = kind.FromHub(obj) // and not the view that a subresource is
	}
	if err != nil {
		return r, asStatusError(err)
	}
	return r, nil
}

// asStatusError returns err if it is an API status error, and otherwise that of a fault of the server.
func asStatusError(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// accept returns what a client has written, which belongs to the request, as an object of the hub.
func (t *target) accept(body runtime.Object) (catalog.Object, error) {
	obj, ok := body.(catalog.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is not a %s", body, t.kind.Kind))
	}
	hub, err := t.kind.Accept(obj)
	switch {
	case err != nil && t.kind.Untyped():
		return nil, err // the conversion webhook has failed, which is not a fault of the client
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return hub, nil
}

// success is the answer to a request that shows no object.
func success(details *metav1.StatusDetails) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  details,
	}
}

// done is the answer to a posted body of which nothing is stored, such as a binding. It has the code of a creation, as upstream's.
func done(warnings []string) result {
	status := success(nil)
	status.Code = http.StatusCreated
	return result{obj: status, created: true, warnings: warnings}
}

// allow asks the authorizer, once for each request.
func (o *operations) allow(ctx context.Context, t *target, verb string, where fields.Selector, name string) error {
	if t.allowed {
		return nil
	}
	return o.authorize(ctx, rbac.Attributes{
		User: t.user, Verb: verb,
		Group: t.kind.Group, Version: t.kind.Version, Resource: t.kind.Resource, Subresource: t.subName(),
		Namespace: t.namespace, Name: name, Fields: where,
	})
}

func (o *operations) authorize(ctx context.Context, a rbac.Attributes) error {
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

// lookup returns the stored object that t names. A record that cannot be read is an error.
func (o *operations) lookup(ctx context.Context, t *target) (*codec.Item, error) {
	item, err := o.lookupRecord(t)
	if err == nil && item.Fault() == nil && t.kind.Untyped() {
		item, err = item.In(ctx, t.kind.Hub())
	}
	if err == nil && item.Fault() != nil {
		return nil, t.unreadable(item.Fault())
	}
	return item, err
}

// lookupRecord returns what is stored where t points to, whether it can be read or not.
func (o *operations) lookupRecord(t *target) (*codec.Item, error) {
	rec, err := o.store.Get(t.key())
	if err != nil {
		return nil, t.readFault(err)
	}
	return codec.ItemOf(t.kind, rec.Key, rec.Value), nil
}

// commit makes a write whose fate must become known, even if the client goes away in
// between.
func (o *operations) commit(ctx context.Context, w store.Write) (*codec.Item, error) {
	rec, err := o.store.Commit(context.WithoutCancel(ctx), w)
	if err != nil {
		return nil, err
	}
	return rec.Value.(*codec.Item), nil
}

// replace writes over a state that was read at the revision that w expects. Its error is for the
// client, or a [racedError] if another write came first.
func (o *operations) replace(ctx context.Context, w store.Write) (*codec.Item, error) {
	o.turns.next(w.Key)
	item, err := o.commit(ctx, w)
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return nil, &racedError{seen: w.Expect}
	case err != nil:
		return nil, storeFault(err)
	}
	return item, nil
}

// admitWhole asks all plug-ins about a write in which no object is validated in between.
func (o *operations) admitWhole(ctx context.Context, a *admission.Attributes) error {
	if err := o.admission.Admit(ctx, a); err != nil {
		return err
	}
	return o.admission.Validate(ctx, a)
}

// now is the time as metadata keeps it: in whole seconds, in UTC, as it comes back from
// every encoding.
func now() metav1.Time { return metav1.NewTime(time.Now().UTC().Truncate(time.Second)) }

// checkNamespace makes the namespace of an incoming object that of the request.
func checkNamespace(t *target, obj metav1.Object) error {
	switch obj.GetNamespace() {
	case t.namespace:
		return nil
	case "":
		obj.SetNamespace(t.namespace)
		return nil
	}
	if t.namespace == "" { // a cluster-scoped object
		obj.SetNamespace("")
		return nil
	}
	return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
}

// checkName compares the name of an incoming object with that of the request.
func checkName(t *target, obj metav1.Object) error {
	switch obj.GetName() {
	case t.name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", t.name))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), t.name))
}

// checkVersion compares what an incoming object says of the version that it was made
// from with what is stored.
func checkVersion(t *target, obj metav1.Object, old *codec.Item) error {
	if uid, have := obj.GetUID(), old.Object().GetUID(); uid != "" && uid != have {
		return apierrors.NewConflict(t.kind.GR(), t.name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, have)) //nolint:staticcheck // the words of Kubernetes
	}
	rv := obj.GetResourceVersion()
	if rv == "" || rv == "0" || rv == old.ResourceVersion() {
		return nil
	}
	if _, err := parseRevision(rv); err != nil {
		return invalid(t, field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), rv, "must be a resource version from this server")})
	}
	return modified(t.kind.GR(), t.name)
}

// refused is the answer to a request with a body in which errs were found. If the request ended meanwhile, rules of
// users may not have been evaluated to the end, and errs say nothing.
func refused(ctx context.Context, t *target, errs field.ErrorList) error {
	if err := ctx.Err(); err != nil {
		return endedEarly(err)
	}
	return invalid(t, errs)
}

func invalid(t *target, errs field.ErrorList) error {
	return catalog.Invalid(t.kind.GroupKind(), t.name, errs)
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

// admitConnect asks admission about a stream with these options.
func (o *operations) admitConnect(ctx context.Context, t *target, item *codec.Item, options runtime.Object) error {
	a := t.attributes(ctx, admission.Connect, false)
	a.Old, a.Connection = item.Object(), options
	defer a.Finish(false)
	return o.admitWhole(ctx, &a)
}

// String names what a target is about, for messages.
func (t *target) String() string {
	if t.name == "" {
		return t.kind.GR().String()
	}
	return fmt.Sprintf("%s %q", t.kind.GR(), t.name)
}

// serves reports whether the kind or subresource has that verb on such a path.
func (t *target) serves(verb string) bool {
	if t.sub != nil {
		return slices.Contains(t.sub.Verbs, verb)
	}
	verbs := t.kind.Verbs
	if verbs == nil {
		verbs = catalog.StandardVerbs
	}
	if !slices.Contains(verbs, verb) {
		return false
	}
	switch verb {
	case verbCreate:
		return t.name == "" && (t.namespace != "" || !t.kind.Namespaced)
	case verbList:
		return t.name == ""
	case verbDeleteCollection:
		return t.name == "" && (t.namespace != "" || !t.kind.Namespaced)
	case verbUpdate, verbPatch, verbDelete, verbGet:
		return t.name != ""
	}
	return true
}

// whileServed returns a context that is over when ctx is, or when the kind is not served any more.
func whileServed(ctx context.Context, kind *catalog.Kind) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(kind.Life(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
