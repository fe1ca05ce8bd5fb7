package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
)

// A right is the permission needed for the approval of a request: to create this subresource of
// certificatesigningrequests, which nothing serves.
type right struct{ subresource, message string }

// rightsFor returns the rights of which one suffices to have a request approved: none, if it is for something else than
// the client certificate of a node.
func rightsFor(r *signingRequest, request *x509.CertificateRequest) (rights []right) {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || forKubeletClient(request, r.Spec.Usages) != nil {
		return nil
	}
	if r.Spec.Username == request.Subject.CommonName {
		rights = append(rights, right{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."})
	}
	return append(rights, right{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."})
}

// approve approves a request for the client certificate of a node, if its author may have that.
func (c *controllers) approve(ctx context.Context, key controller.Key) (controller.Result, error) {
	r, ok := c.requests.Get("", key.Name)
	if !ok || r.DeletionTimestamp != nil || !undecided(r) {
		return controller.Result{}, nil
	}
	request, err := parse(r)
	if err != nil {
		return controller.Result{}, err
	}
	for _, right := range rightsFor(r, request) {
		allowed, err := c.review(ctx, r, right.subresource)
		if err != nil {
			return controller.Result{}, fmt.Errorf("review the access of the author of csr %q: %w", r.Name, err)
		}
		if !allowed {
			continue
		}
		if r.Spec.Username != request.Subject.CommonName {
			if reason, why := c.refuseName(strings.TrimPrefix(request.Subject.CommonName, nodePrefix), time.Now()); why != "" {
				return controller.Result{}, c.deny(ctx, r, reason, why)
			}
		}
		approved := r.DeepCopy()
		approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: right.message,
			LastUpdateTime: metav1.Now(),
		})
		if err := c.update(ctx, approved, "approval", "error updating approval for csr"); err != nil {
			return controller.Result{}, err
		}
		c.reserved.observe(r, approved) // before the next request; the event may come later
		return controller.Result{}, nil
	}
	return controller.Result{}, nil // changes of roles wake it
}

// deny denies a request.
func (c *controllers) deny(ctx context.Context, r *signingRequest, reason, why string) error {
	denied := r.DeepCopy()
	denied.Status.Conditions = append(denied.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: reason, Message: why,
	})
	return c.update(ctx, denied, "approval", "error updating approval for csr")
}

// review asks the API server whether the author of a request has a right (certificates-C1).
func (c *controllers) review(ctx context.Context, r *signingRequest, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range r.Spec.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.Spec.Username, UID: r.Spec.UID, Groups: r.Spec.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certificatesv1.GroupName, Version: "*", Resource: client.CertificateSigningRequests.Resource,
			Subresource: subresource, Verb: "create",
		},
	}}
	reviews := authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")
	answer, err := c.client.Create(ctx, reviews, "", "", review, metav1.CreateOptions{}, "")
	if apierrors.IsNotFound(err) { // the API server does not serve the kind
		return mayRenew(r, subresource), nil
	}
	if err != nil {
		return false, err
	}
	result, ok := answer.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return false, fmt.Errorf("the answer is a %T", answer)
	}
	return result.Status.Allowed, nil
}

// mayRenew decides for API servers without SubjectAccessReviews as kubeadm's roles do: nodes may renew their own
// certificates.
func mayRenew(r *signingRequest, subresource string) bool {
	return subresource == "selfnodeclient" && slices.Contains(r.Spec.Groups, nodesGroup)
}
