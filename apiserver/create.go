package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// create stores a new object, which belongs to the request, or posts a body to a subresource.
func (o *operations) create(ctx context.Context, t target, body runtime.Object, opts metav1.CreateOptions) (result, error) {
	if err := o.allow(ctx, &t, verbCreate, nil, t.name); err != nil {
		return result{}, err
	}
	if err := checkOptions("CreateOptions", metavalidation.ValidateCreateOptions(&opts)); err != nil {
		return result{}, err
	}
	t.options = createOptions(opts)
	dryRun := len(opts.DryRun) > 0
	switch {
	case t.kind.Answered():
		return o.review(ctx, &t, body)
	case t.sub != nil:
		return o.createSub(ctx, &t, body, opts)
	}
	obj, err := t.accept(body)
	if err != nil {
		return result{}, err
	}
	if err := checkNamespace(&t, obj); err != nil {
		return result{}, err
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		t.generated = true
		obj.SetName(generateName(obj.GetGenerateName(), func(name string) bool {
			_, err := o.store.Get(t.kind.Key(t.namespace, name))
			return err == nil
		}))
	}
	return o.createOnce(ctx, t, obj, creation{manager: opts.FieldManager, dryRun: dryRun})
}

// createSub posts a body to a subresource.
func (o *operations) createSub(ctx context.Context, t *target, body runtime.Object, opts metav1.CreateOptions) (result, error) {
	dryRun := len(opts.DryRun) > 0
	switch shape := t.sub.Shape.(type) {
	case catalog.Evict:
		return o.evict(ctx, t, body, opts)
	case catalog.Issue:
		return o.issue(ctx, t, o.issuers[shape.Handler], body, dryRun)
	case catalog.Action:
		return o.act(ctx, t, shape, body, dryRun)
	}
	return result{}, apierrors.NewMethodNotSupported(t.kind.GR(), verbCreate)
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

// createOnce stores obj under the name that it has.
func (o *operations) createOnce(ctx context.Context, t target, obj catalog.Object, how creation) (result, error) {
	dryRun := how.dryRun
	named := t.name != "" // by the URL
	t.name = obj.GetName()
	if err := o.stillServed(&t); err != nil {
		return result{}, err
	}
	if !how.applied {
		obj.SetManagedFields(nil)
	}
	if t.kind.Default != nil {
		t.kind.Default(obj)
	}
	fillNew(t.kind, obj)
	duplicates := dropDuplicateOwners(obj, "")
	if t.kind.Prepare != nil {
		t.kind.Prepare(obj, nil)
	}
	if how.manager != "" && !how.applied {
		// What plug-ins and webhooks add belongs to no manager.
		obj.SetManagedFields(o.managers.Update(o.write(&t, how.manager), nil, obj))
	}
	a := t.attributes(ctx, admission.Create, dryRun)
	a.Object = obj
	committed := false
	defer func() { a.Finish(committed) }()
	if err := o.admission.Admit(ctx, &a); err != nil {
		return result{warnings: a.Warnings}, err
	}
	obj = a.Object
	if a.Changed {
		duplicates = append(duplicates, dropDuplicateOwners(obj, afterAdmission)...)
	}
	if o.admission.Mutates() && t.kind.Default != nil {
		t.kind.Default(obj)
	}
	if a.Changed {
		if err := t.recheck(obj, named); err != nil {
			return result{}, err
		}
	}
	errs := catalog.ValidateMeta(t.kind, obj, nil)
	if t.kind.Validate != nil {
		errs = append(errs, t.kind.Validate(ctx, obj, nil)...)
	}
	if len(errs) > 0 {
		return result{}, refused(ctx, &t, errs)
	}
	if err := o.admission.Validate(ctx, &a); err != nil {
		return result{warnings: a.Warnings}, err
	}
	var warnings []string
	if t.kind.Warn != nil {
		warnings = t.kind.Warn(obj, nil)
	}
	warnings = slices.Concat(duplicates, warnings, a.Warnings)
	if obj.GetResourceVersion() != "" && !dryRun { // as upstream: after the checks, and only if the object is stored
		return result{}, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	item, err := boundedItem(t.kind, obj, 0)
	if err != nil {
		return result{}, err
	}
	if dryRun {
		if _, err := o.store.Get(t.key()); err == nil {
			return result{}, apierrors.NewAlreadyExists(t.kind.GR(), t.name)
		}
		return result{obj: obj, created: true, warnings: warnings}, nil
	}
	if t.kind.Untyped() {
		o.creations.RLock()
		defer o.creations.RUnlock()
	}
	if err := o.stillServed(&t); err != nil {
		return result{}, err // admission can last
	}
	item, err = o.commit(ctx, store.Write{Key: t.key(), Value: item, Volatile: t.kind.Loses(obj, nil), Reserve: reserveOf(&t, false), Account: accountOf(&t, obj)})
	switch {
	case errors.Is(err, store.ErrConflict):
		return result{}, apierrors.NewAlreadyExists(t.kind.GR(), t.name)
	case err != nil:
		return result{}, storeFault(err)
	}
	committed = true
	return result{item: item, created: true, warnings: warnings}, nil
}

// recheck repeats what is checked and completed before admission, of a new object that a webhook or policy changed. Only where the
// request names no object can they change the name.
func (t *target) recheck(obj catalog.Object, named bool) error {
	if err := checkNamespace(t, obj); err != nil {
		return err
	}
	if named {
		if err := checkName(t, obj); err != nil {
			return err
		}
	}
	t.name = obj.GetName()
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	if t.kind.Prepare != nil {
		t.kind.Prepare(obj, nil)
	}
	return nil
}

// stillServed returns an error if no objects of the kind can be created, because its definition is gone or is being deleted.
func (o *operations) stillServed(t *target) error {
	if !t.kind.Untyped() {
		return nil
	}
	kinds := o.catalog.Snapshot()
	now := kinds.Resource(t.kind.GVR())
	switch {
	case now == nil:
		return apierrors.NewNotFound(t.kind.GR(), t.name)
	case kinds.Ending(now):
		return apierrors.NewForbidden(t.kind.GR(), t.name, errors.New("create not allowed while custom resource definition is terminating"))
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
func (o *operations) issue(ctx context.Context, t *target, handler IssueHandler, body runtime.Object, dryRun bool) (result, error) {
	item, err := o.lookup(ctx, t)
	if err != nil {
		return result{}, err
	}
	a := t.attributes(ctx, admission.Create, dryRun)
	a.Object, _ = body.(catalog.Object)
	defer func() { a.Finish(false) }()
	if err := o.admitWhole(ctx, &a); err != nil {
		return result{}, err
	}
	answer, err := handler(auth.WithUser(ctx, t.user), item.Object(), body)
	if err != nil {
		return result{}, err
	}
	answer.GetObjectKind().SetGroupVersionKind(t.body().Kind)
	return result{obj: answer, created: true, warnings: a.Warnings}, nil
}

// review answers the creation of an object that is not stored. There is nothing to
// admit, and a dry run is as good as any.
func (o *operations) review(ctx context.Context, t *target, body runtime.Object) (result, error) {
	obj, ok := body.(catalog.Object)
	if !ok {
		return result{}, apierrors.NewBadRequest(fmt.Sprintf("a %T is not a %s", body, t.kind.Kind))
	}
	if err := checkNamespace(t, obj); err != nil {
		return result{}, err
	}
	if t.kind.Validate != nil {
		if errs := t.kind.Validate(ctx, obj, nil); len(errs) > 0 {
			return result{}, refused(ctx, t, errs)
		}
	}
	answer, err := o.issuers[t.kind.Answer](auth.WithUser(ctx, t.user), nil, obj)
	if err != nil {
		return result{}, err
	}
	answer.GetObjectKind().SetGroupVersionKind(t.kind.GroupVersionKind)
	return result{obj: answer, created: true}, nil
}
