package workload

import (
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// A scaled is a kind of which autoscalers and "kubectl scale" see and change the
// number of pods.
type scaled[T catalog.Object] struct {
	resource schema.GroupResource
	wanted   func(T) **int32
	present  func(T) int32
	selector func(T) *metav1.LabelSelector
	validate func(obj, old T) field.ErrorList
}

func (s scaled[T]) subresource() catalog.Subresource {
	return catalog.Subresource{
		Name:  "scale",
		Verbs: []string{"get", "patch", "update"},
		Shape: catalog.View{
			Body:     &catalog.Body{Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), New: func() runtime.Object { return &autoscalingv1.Scale{} }},
			Get:      func(parent catalog.Object) runtime.Object { return s.get(parent.(T)) },
			Apply:    func(parent catalog.Object, body runtime.Object) error { return s.apply(parent.(T), body) },
			Validate: catalog.Validate(s.validate),
		},
	}
}

func (s scaled[T]) get(obj T) *autoscalingv1.Scale {
	text := ""
	if selector, err := metav1.LabelSelectorAsSelector(s.selector(obj)); err == nil {
		text = selector.String()
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              obj.GetName(),
			Namespace:         obj.GetNamespace(),
			UID:               obj.GetUID(),
			ResourceVersion:   obj.GetResourceVersion(),
			CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: numberOr(*s.wanted(obj), 1)},
		Status: autoscalingv1.ScaleStatus{Replicas: s.present(obj), Selector: text},
	}
}

// apply changes how many pods obj is to have, if the scale is valid and of obj as it
// is now.
func (s scaled[T]) apply(obj T, body runtime.Object) error {
	scale, ok := body.(*autoscalingv1.Scale)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("wrong object passed to Scale update: %T", body))
	}
	if scale.ResourceVersion != "" && obj.GetResourceVersion() != "" && scale.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(s.resource, obj.GetName(), errStale)
	}
	var errs field.ErrorList
	for _, f := range []struct{ name, got, want string }{
		{"name", scale.Name, obj.GetName()},
		{"namespace", scale.Namespace, obj.GetNamespace()},
		{"uid", string(scale.UID), string(obj.GetUID())},
	} {
		if f.got != "" && f.got != f.want {
			errs = append(errs, field.Invalid(field.NewPath("metadata", f.name), f.got, apivalidation.FieldImmutableErrorMsg))
		}
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(scale.Spec.Replicas), field.NewPath("spec", "replicas"))...)
	if len(errs) > 0 {
		return apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), obj.GetName(), errs)
	}
	*s.wanted(obj) = new(scale.Spec.Replicas)
	return nil
}

var errStale = errors.New("the object has been modified; please apply your changes to the latest version and try again")
