package custom

import (
	"context"
	"errors"
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// A scale says where an object has the fields of a Scale, as paths: ".spec.replicas". A nil scale has none.
type scale struct {
	spec, status string
	selector     string // empty if there is none
}

func newScale(s *apiextensionsv1.CustomResourceSubresourceScale) *scale {
	if s == nil {
		return nil
	}
	out := &scale{spec: s.SpecReplicasPath, status: s.StatusReplicasPath}
	if s.LabelSelectorPath != nil {
		out.selector = *s.LabelSelectorPath
	}
	return out
}

// scaleSubresource returns the subresource scale of a version.
func (v *version) scaleSubresource(validate func(ctx context.Context, obj, old catalog.Object) field.ErrorList) catalog.Subresource {
	return catalog.Subresource{
		Name:  "scale",
		Verbs: []string{"get", "patch", "update"},
		Shape: catalog.View{
			Body: &catalog.Body{Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), New: func() runtime.Object { return &autoscalingv1.Scale{} }},
			Get: func(parent catalog.Object) runtime.Object {
				out, err := v.scaleOf(parent)
				if err != nil {
					return &autoscalingv1.Scale{}
				}
				return out
			},
			Absent: func(parent catalog.Object) error {
				u, err := v.fromHub(parent)
				if err != nil {
					return err
				}
				if _, err := v.scale.get(u); err != nil {
					return apierrors.NewInternalError(err)
				}
				if _, found, _ := unstructured.NestedInt64(u.Object, steps(v.scale.spec)...); !found {
					return apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", v.scale.spec))
				}
				return nil
			},
			Apply: func(parent catalog.Object, body runtime.Object) error {
				return v.applyScale(parent, body)
			},
			Validate: validate,
		},
	}
}

func (v *version) scaleOf(parent catalog.Object) (*autoscalingv1.Scale, error) {
	u, err := v.fromHub(parent)
	if err != nil {
		return nil, err
	}
	return v.scale.get(u)
}

// unsetReplicas stands for a number of replicas that an object lacks, until a patch sets it.
const unsetReplicas = math.MinInt32

// get returns the scale of obj. The numbers that obj lacks are unsetReplicas in the spec and 0 in the status.
func (s *scale) get(obj *unstructured.Unstructured) (*autoscalingv1.Scale, error) {
	wanted, found, err := unstructured.NestedInt64(obj.Object, steps(s.spec)...)
	if err != nil {
		return nil, err
	}
	if !found {
		wanted = unsetReplicas
	}
	present, _, err := unstructured.NestedInt64(obj.Object, steps(s.status)...)
	if err != nil {
		return nil, err
	}
	selector := ""
	if s.selector != "" {
		if selector, _, err = unstructured.NestedString(obj.Object, steps(s.selector)...); err != nil {
			return nil, err
		}
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              obj.GetName(),
			Namespace:         obj.GetNamespace(),
			UID:               obj.GetUID(),
			ResourceVersion:   obj.GetResourceVersion(),
			CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(wanted)}, // valid objects have no larger ones
		Status: autoscalingv1.ScaleStatus{Replicas: int32(present), Selector: selector},
	}, nil
}

// applyScale changes how many replicas parent, an object of the hub, is to have.
func (v *version) applyScale(parent catalog.Object, body runtime.Object) error {
	wanted, ok := body.(*autoscalingv1.Scale)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("wrong object passed to Scale update: %v", body))
	}
	if rv := wanted.ResourceVersion; rv != "" && parent.GetResourceVersion() != "" && rv != parent.GetResourceVersion() {
		return apierrors.NewConflict(v.resource, parent.GetName(), errStale)
	}
	u, err := v.fromHub(parent)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if _, err := v.scale.get(u); err != nil {
		return apierrors.NewInternalError(err)
	}
	if wanted.Spec.Replicas == unsetReplicas {
		return apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", v.scale.spec))
	}
	u = u.DeepCopy()
	if err := unstructured.SetNestedField(u.Object, int64(wanted.Spec.Replicas), steps(v.scale.spec)...); err != nil {
		return apierrors.NewInternalError(err)
	}
	out, err := v.toHub(u)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	into, ok := parent.(*unstructured.Unstructured)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("custom: cannot scale a %T", parent))
	}
	into.Object = out.Object
	return nil
}

var errStale = errors.New("the object has been modified; please apply your changes to the latest version and try again")
