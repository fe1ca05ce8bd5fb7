package policies

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/condition"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
)

// ParamAccess refuses policies and bindings whose parameters the user may not read: messages could show them.
// Kubernetes does the same in the storage of these kinds.
type ParamAccess struct {
	catalog    *catalog.Catalog
	objects    admission.Reader
	authorizer condition.Authorizer
}

// NewParamAccess returns the plug-in.
func NewParamAccess(c *catalog.Catalog, objects admission.Reader, z condition.Authorizer) *ParamAccess {
	return &ParamAccess{c, objects, z}
}

// Name implements [admission.Plugin].
func (*ParamAccess) Name() string { return "AdmissionPolicyParamAccess" }

// Validate implements [admission.Validator].
func (p *ParamAccess) Validate(ctx context.Context, a *admission.Attributes) error {
	if a.Kind.Group != admissionregistrationv1.GroupName || a.Object == nil || a.Subresource != "" || a.User == nil || a.User.In(auth.GroupMasters) {
		return nil
	}
	at, err := field.NewPath("spec", "paramKind"), error(nil)
	switch obj := a.Object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		old, ok := a.Old.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !ok || !equality.Semantic.DeepEqual(old.Spec.ParamKind, obj.Spec.ParamKind) {
			err = p.policy(ctx, a.User, obj.Spec.ParamKind)
		}
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		old, ok := a.Old.(*admissionregistrationv1.MutatingAdmissionPolicy)
		if !ok || !equality.Semantic.DeepEqual(old.Spec.ParamKind, obj.Spec.ParamKind) {
			err = p.policy(ctx, a.User, obj.Spec.ParamKind)
		}
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		at = field.NewPath("spec", "paramRef")
		old, ok := a.Old.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		if !ok || old.Spec.PolicyName != obj.Spec.PolicyName || !equality.Semantic.DeepEqual(old.Spec.ParamRef, obj.Spec.ParamRef) {
			err = p.binding(ctx, a.User, "validatingadmissionpolicies", obj.Spec.PolicyName, obj.Spec.ParamRef)
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		at = field.NewPath("spec", "paramRef")
		old, ok := a.Old.(*admissionregistrationv1.MutatingAdmissionPolicyBinding)
		if !ok || old.Spec.PolicyName != obj.Spec.PolicyName || !equality.Semantic.DeepEqual(old.Spec.ParamRef, obj.Spec.ParamRef) {
			err = p.binding(ctx, a.User, "mutatingadmissionpolicies", obj.Spec.PolicyName, obj.Spec.ParamRef)
		}
	}
	if err == nil {
		return nil
	}
	return apierrors.NewInvalid(a.Kind.GroupKind(), a.Name, field.ErrorList{field.Forbidden(at, err.Error())})
}

// shown is the user in the form that messages of Kubernetes have.
func shown(u *auth.User) user.Info {
	return &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}

// resource returns the resource of a paramKind, with "*" for what is not known.
func (p *ParamAccess) resource(k *admissionregistrationv1.ParamKind) (_ schema.GroupVersionResource, parsed, resolved bool) {
	gvr := schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return gvr, false, false
	}
	gvr.Group, gvr.Version = gv.Group, gv.Version
	kind := p.catalog.Kind(gv.WithKind(k.Kind))
	if kind == nil {
		return gvr, true, false
	}
	return kind.GVR(), true, true
}

func (p *ParamAccess) policy(ctx context.Context, u *auth.User, k *admissionregistrationv1.ParamKind) error {
	if k == nil {
		return nil
	}
	gvr, _, _ := p.resource(k)
	if p.authorizer.Authorize(ctx, rbac.Attributes{
		User: u, Verb: "get", Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Namespace: "*", Name: "*",
	}).Allowed {
		return nil
	}
	return fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, shown(u), k.Kind, k.APIVersion)
}

func (p *ParamAccess) binding(ctx context.Context, u *auth.User, policies, name string, r *admissionregistrationv1.ParamRef) error {
	if r == nil {
		return nil
	}
	verb := "get"
	if r.Name == "" {
		verb = "list"
	}
	minimum := fmt.Sprintf("to determine minimum required permissions and user %v does not have %q permission for all groups, versions and resources", shown(u), verb)
	gvr, refusal := schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}, fmt.Errorf("user %v does not have %q permission on the object referenced by paramRef", shown(u), verb)
	switch kind, err := p.paramKind(ctx, policies, name); {
	case err != nil:
		refusal = fmt.Errorf("unable to get policy %s %s", name, minimum)
	case kind != nil:
		parsed, resolved := false, false
		if gvr, parsed, resolved = p.resource(kind); !parsed {
			refusal = fmt.Errorf("unable to parse paramKind %v %s", kind, minimum)
		} else if !resolved {
			refusal = fmt.Errorf("unable to resolve paramKind %v %s", kind, minimum)
		}
	}
	if p.authorizer.Authorize(ctx, rbac.Attributes{
		User: u, Verb: verb, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Namespace: r.Namespace, Name: r.Name,
	}).Allowed {
		return nil
	}
	return refusal
}

// paramKind returns the paramKind of a stored policy.
func (p *ParamAccess) paramKind(ctx context.Context, policies, name string) (*admissionregistrationv1.ParamKind, error) {
	obj, err := p.objects.Get(ctx, admissionregistrationv1.SchemeGroupVersion.WithResource(policies), "", name)
	if err != nil {
		return nil, err
	}
	switch obj := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return obj.Spec.ParamKind, nil
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return obj.Spec.ParamKind, nil
	}
	return nil, errors.New("not a policy")
}
