package operation

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/audit"
)

// attributes returns those of a write for admission, which the caller completes with the objects.
func (t *Target) attributes(ctx context.Context, operation admission.Operation, dryRun bool) admission.Attributes {
	return admission.Attributes{
		Operation: operation, Kind: t.Kind.Hub(), Served: t.Kind, Subresource: t.SubName(), Namespace: t.Namespace, Name: t.Name,
		Generated: t.generated, Inner: t.Inner, User: t.User, Options: t.options, DryRun: dryRun, Audit: audit.From(ctx),
	}
}

// end finishes the admission of a write: plug-ins learn whether it was committed, and the result has all warnings
// that arose, even if the write failed or changed nothing.
func (r *Result) end(a *admission.Attributes, committed bool) {
	r.Warnings = a.Warnings
	a.Finish(committed)
}

// optionsOf returns an object of meta.k8s.io/v1 as admission shows it.
func optionsOf(opts runtime.Object, kind string) runtime.Object {
	opts.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(kind))
	return opts
}

func createOptions(o metav1.CreateOptions) runtime.Object { return optionsOf(&o, "CreateOptions") }

func updateOptions(o metav1.UpdateOptions) runtime.Object { return optionsOf(&o, "UpdateOptions") }

// patches makes the options those of an update, which a patch is for admission.
func (t *Target) patches(o *metav1.PatchOptions) {
	t.options = updateOptions(metav1.UpdateOptions{DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation})
}

// creates makes the options those of a creation: an update and an apply of an object that does not exist are creations.
func (t *Target) creates(dryRun []string, manager, validation string) {
	t.options = createOptions(metav1.CreateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation})
}

func removeOptions(o *metav1.DeleteOptions) runtime.Object {
	return optionsOf(o.DeepCopy(), "DeleteOptions")
}
