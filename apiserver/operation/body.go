package operation

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/patch"
	"github.com/sampan-io/sampan/catalog"
)

// NewBody returns an empty body for t, and its kind.
func (t *Target) NewBody() (runtime.Object, schema.GroupVersionKind) {
	if b := t.Body(); b != nil {
		return b.New(), b.Kind
	}
	return t.Kind.New(), t.Kind.GroupVersionKind
}

// Coerce drops fields that the schema of a kind without a Go type lacks from a body that is an object of the kind. It returns
// warnings of unknown fields, or an error if v is Strict.
func (t *Target) Coerce(obj runtime.Object, v codec.Validation) (warnings []string, err error) {
	if t == nil || t.Kind.Coerce == nil {
		return nil, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil // the body of a subresource that has a Go type
	}
	unknown, err := t.Kind.Coerce(u, catalog.Coercion{Strict: v != codec.Ignore})
	if err != nil {
		return nil, t.uncoerced(err)
	}
	return codec.UnknownFields(unknown, t.Kind.GroupVersionKind, v)
}

// coerceApplied is Coerce for obj, the result of the server-side apply of config.
func (t *Target) coerceApplied(obj runtime.Object, config *unstructured.Unstructured) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || t.Kind.Coerce == nil {
		return nil
	}
	if t.Kind.Hub() != t.Kind { // obj has come from the hub, without the nulls that config put there
		if _, err := t.Kind.Coerce(config.DeepCopy(), catalog.Coercion{Applied: true, Sub: t.SubName()}); err != nil {
			return t.inapplicable(err)
		}
	}
	if _, err := t.Kind.Coerce(u, catalog.Coercion{Applied: t.Kind.Hub() == t.Kind}); err != nil {
		return t.inapplicable(err)
	}
	return nil
}

// inapplicable is uncoerced for a configuration: upstream finds wrong metadata of embedded resources when it validates the object.
func (t *Target) inapplicable(err error) error {
	if fault := (*field.Error)(nil); errors.As(err, &fault) {
		return apierrors.NewInvalid(t.Kind.GroupVersionKind.GroupKind(), t.Name, field.ErrorList{fault})
	}
	return t.uncoerced(err)
}

func (t *Target) uncoerced(err error) error {
	if apierrors.ReasonForError(err) == metav1.StatusReasonInvalid {
		return err
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", t.Kind.Kind, t.Kind.Version, t.Kind.Kind, err))
}

// PatchTypes returns the types of patches that t takes. Strategic merge patches need a Go type.
func (t *Target) PatchTypes() []types.PatchType {
	all := patch.Types()
	if t.Kind.Untyped() {
		return slices.DeleteFunc(all, func(p types.PatchType) bool { return p == types.StrategicMergePatchType })
	}
	return all
}
