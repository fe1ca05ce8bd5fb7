package policies

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
)

// Errors of bindings.
var (
	errNamespacedParams = errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	errClusterParams    = errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	errTwoParams        = errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	errNoParamRef       = errors.New("one of name or selector must be provided")
	errParamsMissing    = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
)

// paramKind returns the kind of a policy's parameters, which may be served one day and not the next; nil if it has none.
func paramKind(c *catalog.Catalog, k *admissionregistrationv1.ParamKind) (*catalog.Kind, error) {
	if k == nil {
		return nil, nil // no parameters
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
	}
	kind := c.Kind(gv.WithKind(k.Kind))
	if kind == nil || kind.Answered() {
		return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gv.WithKind(k.Kind))
	}
	return kind, nil
}

// paramsOf returns the parameters of a binding for a request in the namespace: a single nil if the policy is evaluated without,
// and none if it is not evaluated. What is wrong with the binding is an error.
func paramsOf(ctx context.Context, objects admission.Reader, kind *catalog.Kind, r *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error) {
	if kind == nil || r == nil {
		return []runtime.Object{nil}, nil
	}
	switch {
	case !kind.Namespaced && r.Namespace != "":
		return nil, errClusterParams
	case !kind.Namespaced:
		namespace = ""
	case r.Namespace != "":
		namespace = r.Namespace
	case namespace == "":
		return nil, errNamespacedParams
	}
	found, err := findParams(ctx, objects, kind, r, namespace)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && r.ParameterNotFoundAction != nil && *r.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		return nil, errParamsMissing
	}
	params := make([]runtime.Object, len(found))
	for i, obj := range found {
		if params[i], err = kind.FromHub(obj); err != nil {
			return nil, err
		}
	}
	return params, nil
}

func findParams(ctx context.Context, objects admission.Reader, kind *catalog.Kind, r *admissionregistrationv1.ParamRef, namespace string) ([]catalog.Object, error) {
	gvr := kind.Hub().GVR()
	switch {
	case r.Name != "" && r.Selector != nil:
		return nil, errTwoParams
	case r.Name != "":
		obj, err := objects.Get(ctx, gvr, namespace, r.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return []catalog.Object{obj}, err
	case r.Selector != nil:
		selector, err := metav1.LabelSelectorAsSelector(r.Selector)
		if err != nil {
			return nil, err
		}
		all, err := objects.List(ctx, gvr, namespace, nil)
		if err != nil {
			return nil, err
		}
		var matching []catalog.Object
		for _, obj := range all {
			if selector.Matches(labels.Set(obj.GetLabels())) {
				matching = append(matching, obj)
			}
		}
		return matching, nil
	}
	return nil, errNoParamRef
}
