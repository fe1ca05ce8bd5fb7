package operation

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// Names made from generateName: the prefix, cut so that the whole fits into a DNS label, and five random letters, others if an
// object has the name. All as in Kubernetes.
const (
	longestGenerated = 63
	randomLetters    = 5
	generateTries    = 8
)

// Create stores a new object, which belongs to the request, or posts a body to a subresource.
func (o *Operations) Create(ctx context.Context, t Target, body runtime.Object, opts metav1.CreateOptions) (Result, error) {
	if err := o.Allow(ctx, &t, VerbCreate, nil, t.Name); err != nil {
		return Result{}, err
	}
	if err := checkOptions("CreateOptions", metavalidation.ValidateCreateOptions(&opts)); err != nil {
		return Result{}, err
	}
	t.options = createOptions(opts)
	dryRun := len(opts.DryRun) > 0
	switch {
	case t.Kind.Answered():
		return o.review(ctx, &t, body)
	case t.Sub != nil:
		return o.createSub(ctx, &t, body, opts)
	}
	obj, err := t.accept(body)
	if err != nil {
		return Result{}, err
	}
	if err := checkNamespace(&t, obj); err != nil {
		return Result{}, err
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		t.generated = true
		obj.SetName(generateName(obj.GetGenerateName(), func(name string) bool {
			_, err := o.store.Get(t.Kind.Key(t.Namespace, name))
			return err == nil
		}))
	}
	return o.createOnce(ctx, t, obj, creation{manager: opts.FieldManager, dryRun: dryRun})
}

// createSub posts a body to a subresource.
func (o *Operations) createSub(ctx context.Context, t *Target, body runtime.Object, opts metav1.CreateOptions) (Result, error) {
	dryRun := len(opts.DryRun) > 0
	switch shape := t.Sub.Shape.(type) {
	case catalog.Evict:
		return o.evict(ctx, t, body, opts)
	case catalog.Issue:
		return o.issue(ctx, t, o.issuers[shape.Handler], body, dryRun)
	case catalog.Action:
		return o.act(ctx, t, shape, body, dryRun)
	}
	return Result{}, apierrors.NewMethodNotSupported(t.Kind.GR(), VerbCreate)
}

// generateName returns a name that is not taken, unless so many are that some tries find none.
func generateName(prefix string, taken func(name string) bool) string {
	if len(prefix) > longestGenerated-randomLetters {
		prefix = prefix[:longestGenerated-randomLetters]
	}
	name := prefix + rand.String(randomLetters)
	for try := 1; try < generateTries && taken(name); try++ {
		name = prefix + rand.String(randomLetters)
	}
	return name
}

// A creation is how an object is created.
type creation struct {
	manager string // the object gets managed fields if the request names its manager
	applied bool   // the object comes from an apply and has its managed fields
	dryRun  bool
}

// createOnce stores obj under the name that it has. If obj would have something that belongs to another object by now,
// admission is asked again: it chooses another value in the place of its own, and refuses a value of the client.
func (o *Operations) createOnce(ctx context.Context, t Target, obj catalog.Object, how creation) (Result, error) {
	if t.Kind.Sole == nil || how.dryRun {
		return o.tryCreate(ctx, t, obj, how)
	}
	var lost claimRace
	for {
		r, err := o.tryCreate(ctx, t, obj.DeepCopyObject().(catalog.Object), how)
		e, claimed := errors.AsType[*store.ClaimError](err)
		if !claimed {
			return r, err
		}
		if err := lost.again(ctx, &t, obj.GetName(), e); err != nil {
			return Result{}, err
		}
	}
}

// tryCreate is createOnce, and returns a [store.ClaimError] as it is.
func (o *Operations) tryCreate(ctx context.Context, t Target, obj catalog.Object, how creation) (r Result, err error) {
	dryRun := how.dryRun
	named := t.Name != "" // by the URL
	t.Name = obj.GetName()
	if err := o.stillServed(&t); err != nil {
		return Result{}, err
	}
	if !how.applied {
		obj.SetManagedFields(nil)
	}
	if t.Kind.Default != nil {
		t.Kind.Default(obj)
	}
	fillNew(t.Kind, obj)
	a := t.attributes(ctx, admission.Create, dryRun)
	a.Warnings = dropDuplicateOwners(obj, "")
	committed := false
	defer func() { r.end(&a, committed) }()
	if t.Kind.Prepare != nil {
		t.Kind.Prepare(obj, nil)
	}
	if how.manager != "" && !how.applied {
		// What plug-ins and webhooks add belongs to no manager.
		obj.SetManagedFields(o.managers.Update(o.write(&t, how.manager), nil, obj))
	}
	a.Object = obj
	if err := o.admission.Admit(ctx, &a); err != nil {
		return Result{}, err
	}
	obj = a.Object
	if a.Changed {
		a.Warnings = append(a.Warnings, dropDuplicateOwners(obj, afterAdmission)...)
	}
	if o.admission.Mutates() && t.Kind.Default != nil {
		t.Kind.Default(obj)
	}
	if a.Changed {
		if err := t.recheck(obj, named); err != nil {
			return Result{}, err
		}
	}
	errs := catalog.ValidateMeta(t.Kind, obj, nil)
	if t.Kind.Validate != nil {
		errs = append(errs, t.Kind.Validate(ctx, obj, nil)...)
	}
	if len(errs) > 0 {
		return Result{}, refused(ctx, &t, errs)
	}
	if t.Kind.Warn != nil {
		a.Warnings = append(a.Warnings, t.Kind.Warn(obj, nil)...)
	}
	if err := o.admission.Validate(ctx, &a); err != nil {
		return Result{}, err
	}
	if obj.GetResourceVersion() != "" && !dryRun { // as upstream: after the checks, and only if the object is stored
		return Result{}, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	item, err := boundedItem(t.Kind, obj, 0, largestObject)
	if err != nil {
		return Result{}, err
	}
	if dryRun {
		if _, err := o.store.Get(t.Key()); err == nil {
			return Result{}, apierrors.NewAlreadyExists(t.Kind.GR(), t.Name)
		}
		return Result{Made: obj, Created: true}, nil
	}
	if err := o.stillServed(&t); err != nil {
		return Result{}, err // admission can last
	}
	if t.Kind.Untyped() {
		guard, err := o.definitions.Look(ctx, &a)
		if err != nil {
			return Result{}, err
		}
		a.Guards = append(a.Guards, guard)
	}
	item, err = o.commitAdmitted(ctx, &t, &a, store.Write{Key: t.Key(), Value: item, Volatile: t.Kind.Loses(obj, nil), Reserve: reserveOf(&t, false), Account: accountOf(&t, obj)})
	switch {
	case errors.Is(err, store.ErrConflict):
		return Result{}, apierrors.NewAlreadyExists(t.Kind.GR(), t.Name)
	case errors.Is(err, store.ErrClaimed):
		return Result{}, err
	case err != nil:
		return Result{}, writeFault(err)
	}
	committed = true
	return Result{Item: item, Created: true}, nil
}

// recheck repeats what is checked and completed before admission, of a new object that a webhook or policy changed. Only where the
// request names no object can they change the name.
func (t *Target) recheck(obj catalog.Object, named bool) error {
	if err := checkNamespace(t, obj); err != nil {
		return err
	}
	if named {
		if err := checkName(t, obj); err != nil {
			return err
		}
	}
	t.Name = obj.GetName()
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	if t.Kind.Prepare != nil {
		t.Kind.Prepare(obj, nil)
	}
	return nil
}

// stillServed returns an error if no objects of the kind can be created, because its definition is gone or is being deleted.
func (o *Operations) stillServed(t *Target) error {
	if !t.Kind.Untyped() {
		return nil
	}
	kinds := o.catalog.Snapshot()
	now := kinds.Resource(t.Kind.GVR())
	switch {
	case now == nil:
		return apierrors.NewNotFound(t.Kind.GR(), t.Name)
	case kinds.Ending(now):
		return definitionEnds(t.Kind, t.Name)
	}
	return nil
}

// fillNew sets the metadata that only the server sets.
func fillNew(kind *catalog.Kind, obj catalog.Object) {
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(now())
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	if kind.Generation { // or else it is what the client says, as upstream
		obj.SetGeneration(1)
	}
}

// issue answers a subresource whose body is not stored.
func (o *Operations) issue(ctx context.Context, t *Target, handler IssueHandler, body runtime.Object, dryRun bool) (r Result, err error) {
	item, err := o.Lookup(ctx, t)
	if err != nil {
		return Result{}, err
	}
	a := t.attributes(ctx, admission.Create, dryRun)
	a.Object, _ = body.(catalog.Object)
	defer func() { r.end(&a, false) }()
	if err := o.admitWhole(ctx, &a); err != nil {
		return Result{}, err
	}
	answer, err := handler(auth.WithUser(ctx, t.User), item.Object(), body)
	if err != nil {
		return Result{}, err
	}
	answer.GetObjectKind().SetGroupVersionKind(t.Body().Kind)
	return Result{Made: answer, Created: true}, nil
}

// review answers the creation of an object that is not stored. There is nothing to
// admit, and a dry run is as good as any.
func (o *Operations) review(ctx context.Context, t *Target, body runtime.Object) (Result, error) {
	obj, ok := body.(catalog.Object)
	if !ok {
		return Result{}, apierrors.NewBadRequest(fmt.Sprintf("a %T is not a %s", body, t.Kind.Kind))
	}
	if err := checkNamespace(t, obj); err != nil {
		return Result{}, err
	}
	if t.Kind.Validate != nil {
		if errs := t.Kind.Validate(ctx, obj, nil); len(errs) > 0 {
			return Result{}, refused(ctx, t, errs)
		}
	}
	answer, err := o.issuers[t.Kind.Answer](auth.WithUser(ctx, t.User), nil, obj)
	if err != nil {
		return Result{}, err
	}
	answer.GetObjectKind().SetGroupVersionKind(t.Kind.GroupVersionKind)
	return Result{Made: answer, Created: true}, nil
}
