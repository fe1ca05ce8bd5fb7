// Package condition shows a request to the expressions of admission (package internal/admissioncel): its objects in
// the version that a webhook or policy wants, the request itself, its namespace, and the authorizer.
//
// A [Request] is made once for all webhooks or policies of a plug-in; what an expression does not need is not made.
package condition

import (
	"context"
	"maps"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// A Request is a write as expressions see it. It is for one goroutine.
type Request struct {
	attributes *admission.Attributes
	authorizer authorizerFor
	user       user.Info
	versions   map[*catalog.Kind]*version
	namespace  *corev1.Namespace // a copy with the fields that expressions may read
}

// A version is a request in one version of its resource.
type version struct {
	request *admissionv1.AdmissionRequest
	object  runtime.Object // of that version, or nil
	old     runtime.Object
	values  admissioncel.Values
}

// NewRequest returns the request that a describes, whose expressions ask z what users may do.
func NewRequest(a *admission.Attributes, z Authorizer) *Request {
	return &Request{attributes: a, authorizer: authorizerFor{z}, versions: map[*catalog.Kind]*version{}}
}

// Attributes returns the attributes of the request.
func (r *Request) Attributes() *admission.Attributes { return r.attributes }

// Changed says that the object of the attributes was changed or replaced.
func (r *Request) Changed() {
	for _, v := range r.versions {
		v.object, v.values = nil, admissioncel.Values{}
	}
	maps.DeleteFunc(r.versions, func(*catalog.Kind, *version) bool { return true })
}

// In returns the variables of expressions, with the objects in a version of the request's resource, without params and
// namespaceObject. The error says that an object cannot be converted.
func (r *Request) In(served *catalog.Kind) (admissioncel.Values, error) {
	v, err := r.version(served)
	if err != nil {
		return admissioncel.Values{}, err
	}
	return v.values, nil
}

// Objects returns the new and the old object in a version of the request's resource: nil where there is none. Where the
// version is the stored one, these are the objects of the attributes.
func (r *Request) Objects(served *catalog.Kind) (obj, old runtime.Object, err error) {
	v, err := r.version(served)
	if err != nil {
		return nil, nil, err
	}
	return v.object, v.old, nil
}

func (r *Request) version(served *catalog.Kind) (*version, error) {
	if v := r.versions[served]; v != nil {
		return v, nil
	}
	a := r.attributes
	v := &version{request: r.AdmissionRequest(served)}
	var err error
	if v.object, err = r.convert(a.New(), served); err != nil {
		return nil, err
	}
	if old := a.Previous(); old != nil {
		if v.old, err = r.convert(old, served); err != nil {
			return nil, err
		}
	}
	v.values = admissioncel.Values{
		Object: admissioncel.Value(v.object), OldObject: admissioncel.Value(v.old), Request: admissioncel.Value(v.request),
	}
	if r.authorizer.Authorizer != nil {
		v.values = v.values.Authorize(r.userInfo(), r.authorizer, &admissioncel.RequestResource{
			Resource: a.Requested().GVR(), Subresource: a.Subresource, Namespace: a.AdmissionNamespace(), Name: a.AdmissionName(),
		})
	}
	r.versions[served] = v
	return v, nil
}

// convert returns an object of the request in a version of its resource. Bodies of subresources are of their own kind
// and stay as they are.
func (r *Request) convert(obj runtime.Object, served *catalog.Kind) (runtime.Object, error) {
	o, ok := obj.(catalog.Object)
	if !ok || served.Hub() == served || o.GetObjectKind().GroupVersionKind() != served.Hub().GroupVersionKind {
		return obj, nil
	}
	return served.FromHub(o)
}

// AdmissionRequest returns the request without its uid and its objects, matched in a version of its resource.
func (r *Request) AdmissionRequest(served *catalog.Kind) *admissionv1.AdmissionRequest {
	a := r.attributes
	requested := a.Requested()
	requestKind, requestResource := metav1.GroupVersionKind(a.BodyKind(requested)), metav1.GroupVersionResource(requested.GVR())
	req := &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(a.BodyKind(served)), Resource: metav1.GroupVersionResource(served.GVR()), SubResource: a.Subresource,
		RequestKind: &requestKind, RequestResource: &requestResource, RequestSubResource: a.Subresource,
		Name: a.AdmissionName(), Namespace: a.AdmissionNamespace(),
		Operation: admissionv1.Operation(a.Operation), DryRun: &a.DryRun,
		Options: runtime.RawExtension{Object: a.Options},
	}
	if u := a.User; u != nil {
		req.UserInfo = authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: map[string]authenticationv1.ExtraValue{}}
		for key, values := range u.Extra {
			req.UserInfo.Extra[key] = values
		}
	}
	return req
}

// Namespace returns the value of namespaceObject for the namespace that the request is in: null for objects of the
// cluster's scope. The error is an API status error.
func (r *Request) Namespace(ctx context.Context, objects admission.Reader) (*corev1.Namespace, error) {
	a := r.attributes
	if a.Namespace == "" || r.namespace != nil {
		return r.namespace, nil
	}
	obj, err := objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), "", a.Namespace)
	if err != nil {
		return nil, err
	}
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, apierrors.NewInternalError(errNoNamespace)
	}
	r.namespace = &corev1.Namespace{Spec: ns.Spec, Status: ns.Status, ObjectMeta: *ns.ObjectMeta.DeepCopy()}
	r.namespace.ManagedFields, r.namespace.OwnerReferences = nil, nil
	return r.namespace, nil
}
