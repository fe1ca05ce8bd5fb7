package auth

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	defaultLife = time.Hour        // of a token whose request says nothing
	shortest    = 10 * time.Minute // the shortest that may be asked for, as in Kubernetes
)

var tokenRequestKind = schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}

// Request answers a TokenRequest for a service account: the body of a POST to
// its subresource "token". It returns a copy of tr with what was granted in spec
// and the token in status. Nothing is stored.
//
// A token may be bound to a pod that runs as the service account, to a secret, or to
// a node; that object and the service account must exist, with the UIDs that the request names, if it names any.
// A wish for a life longer than the longest is cut to that.
func (t *Tokens) Request(ctx context.Context, namespace, name string, tr *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	tr = tr.DeepCopy()
	if tr.Name != "" && tr.Name != name {
		return nil, apierrors.NewInvalid(tokenRequestKind, name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), tr.Name, "must match the service account name if specified"),
		})
	}
	if tr.Namespace != "" && tr.Namespace != namespace {
		return nil, apierrors.NewInvalid(tokenRequestKind, name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "namespace"), tr.Namespace, "must match the service account namespace if specified"),
		})
	}
	if tr.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultLife / time.Second)
		tr.Spec.ExpirationSeconds = &seconds
	}
	if errs := validateRequest(&tr.Spec); len(errs) > 0 {
		return nil, apierrors.NewInvalid(tokenRequestKind, "", errs)
	}

	account, err := t.opts.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), namespace, name)
	if err != nil {
		return nil, err
	}
	if tr.UID != "" && tr.UID != account.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: authenticationv1.GroupName, Resource: "TokenRequest"}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", tr.UID, account.GetUID()))
	}
	b := binding{Namespace: namespace, ServiceAccount: reference{name, account.GetUID()}}
	if ref := tr.Spec.BoundObjectRef; ref != nil {
		if err := t.bind(ctx, &b, ref); err != nil {
			return nil, err
		}
	}
	if len(tr.Spec.Audiences) == 0 {
		tr.Spec.Audiences = t.opts.Audiences
	}
	// Compared in seconds, because a wish may be longer than a Duration can be.
	life := t.opts.Longest
	if asked := *tr.Spec.ExpirationSeconds; asked < int64(life/time.Second) {
		life = time.Duration(asked) * time.Second
	}
	granted := int64(life / time.Second)
	tr.Spec.ExpirationSeconds = &granted

	token, expires, err := t.sign(b, tr.Spec.Audiences, life)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	tr.Name, tr.Namespace, tr.UID, tr.CreationTimestamp = name, namespace, account.GetUID(), metav1.Now()
	tr.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires)}
	return tr, nil
}

func validateRequest(spec *authenticationv1.TokenRequestSpec) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "expirationSeconds")
	switch seconds := *spec.ExpirationSeconds; {
	case seconds < int64(shortest/time.Second):
		errs = append(errs, field.Invalid(path, seconds, "may not specify a duration less than 10 minutes"))
	case seconds > 1<<32:
		errs = append(errs, field.Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	for i, audience := range spec.Audiences {
		if audience == "" { // upstream makes a token that no server accepts
			errs = append(errs, field.Required(field.NewPath("spec", "audiences").Index(i), "must not be empty"))
		}
	}
	if ref := spec.BoundObjectRef; ref != nil && ref.Name == "" {
		errs = append(errs, field.Required(field.NewPath("spec", "boundObjectRef", "name"), "names the object that the token is bound to"))
	}
	return errs
}

// bind puts the object that ref names into b.
func (t *Tokens) bind(ctx context.Context, b *binding, ref *authenticationv1.BoundObjectReference) error {
	core := corev1.SchemeGroupVersion
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	var uid types.UID
	switch gvk {
	case core.WithKind("Pod"):
		o, err := t.opts.Objects.Get(ctx, core.WithResource("pods"), b.Namespace, ref.Name)
		if err != nil {
			return err
		}
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return apierrors.NewInternalError(fmt.Errorf("pods/%s is a %T", ref.Name, o))
		}
		if pod.Spec.ServiceAccountName != b.ServiceAccount.Name {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with serviceaccount %q", b.ServiceAccount.Name, pod.Spec.ServiceAccountName))
		}
		uid = pod.UID
		b.Pod = &reference{ref.Name, uid}
		if pod.Spec.NodeName != "" {
			// The node is information for the reader of the token. It does not matter if it has
			// been deleted in the meantime.
			b.Node = &reference{Name: pod.Spec.NodeName}
			if node, err := t.opts.Objects.Get(ctx, core.WithResource("nodes"), "", pod.Spec.NodeName); err == nil {
				b.Node.UID = node.GetUID()
			}
		}
	case core.WithKind("Secret"):
		o, err := t.opts.Objects.Get(ctx, core.WithResource("secrets"), b.Namespace, ref.Name)
		if err != nil {
			return err
		}
		uid = o.GetUID()
		b.Secret = &reference{ref.Name, uid}
	case core.WithKind("Node"):
		o, err := t.opts.Objects.Get(ctx, core.WithResource("nodes"), "", ref.Name)
		if err != nil {
			return err
		}
		uid = o.GetUID()
		b.Node = &reference{ref.Name, uid}
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk.String()))
	}
	if ref.UID != "" && ref.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", ref.UID, uid))
	}
	return nil
}
