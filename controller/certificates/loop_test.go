package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// broken is an authority that cannot sign.
type broken struct{}

func (broken) NotAfter() time.Time { return time.Now().Add(time.Hour) }
func (broken) Sign(*x509.Certificate, crypto.PublicKey) ([]byte, error) {
	return nil, errors.New("no key")
}

// A reviewer answers SubjectAccessReviews; a nil one does not serve them.
type reviewer struct {
	client.Interface
	allows func(*authorizationv1.SubjectAccessReviewSpec) bool
}

func (r reviewer) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, sub string) (runtime.Object, error) {
	review, ok := obj.(*authorizationv1.SubjectAccessReview)
	switch {
	case !ok:
		return r.Interface.Create(ctx, gvr, namespace, name, obj, opts, sub)
	case r.allows == nil:
		return nil, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	review = review.DeepCopy()
	review.Status.Allowed = r.allows(&review.Spec)
	return review, nil
}

// controlling runs the controllers on a server of the given objects.
func controlling(t *testing.T, allows func(*authorizationv1.SubjectAccessReviewSpec) bool, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	tasks := func(c client.Interface, caches *cache.Shared) []run.Task {
		return Tasks(Options{Config: controller.Config{Client: reviewer{c, allows}, Caches: caches}, Authority: broken{}})
	}
	controllertest.Controlling(t, tasks, f, objs...)
}

// renewal is the request of node n1 for its own client certificate.
func renewal(t *testing.T) *signingRequest {
	return &signingRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "renewal", UID: "renewal"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Request: encoded(t, asked("o=system:nodes cn=system:node:n1")),
			Username: "system:node:n1", UID: "7", Groups: []string{"system:nodes"}, Extra: map[string]certificatesv1.ExtraValue{"a": {"b"}},
			Usages: usages("client auth, digital signature"),
		},
	}
}

func found(s *clienttest.Server, name string) *signingRequest {
	return clienttest.Find(s, client.CertificateSigningRequests, "", name)
}

func TestRenewalIsApprovedAfterReview(t *testing.T) {
	var asked []authorizationv1.SubjectAccessReviewSpec
	allows := func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		asked = append(asked, *s)
		return s.ResourceAttributes.Subresource == "nodeclient"
	}
	controlling(t, allows, func(t *testing.T, s *clienttest.Server) {
		c := found(s, "renewal").Status.Conditions
		if len(c) != 1 || c[0].Type != certificatesv1.CertificateApproved || c[0].Reason != "AutoApproved" || c[0].Message != "Auto approving kubelet client certificate after SubjectAccessReview." {
			t.Errorf("the conditions are %+v", c)
		}
		if len(asked) != 2 || asked[0].ResourceAttributes.Subresource != "selfnodeclient" {
			t.Fatalf("asked %+v", asked)
		}
		a, r := asked[1], asked[1].ResourceAttributes
		if a.User != "system:node:n1" || a.UID != "7" || len(a.Groups) != 1 || a.Extra["a"][0] != "b" ||
			*r != (authorizationv1.ResourceAttributes{Group: "certificates.k8s.io", Version: "*", Resource: "certificatesigningrequests", Subresource: "nodeclient", Verb: "create"}) {
			t.Errorf("asked %+v about %+v", a, r)
		}
	}, renewal(t))
}

func TestRenewalWaitsForRole(t *testing.T) {
	allowed, asked := false, 0
	allows := func(*authorizationv1.SubjectAccessReviewSpec) bool { asked++; return allowed }
	controlling(t, allows, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(time.Hour) // of the bubble
		synctest.Wait()
		if asked != 2 || len(found(s, "renewal").Status.Conditions) > 0 {
			t.Fatalf("asked %d times; the conditions are %v", asked, found(s, "renewal").Status.Conditions)
		}
		allowed = true
		s.Set(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "renew"}})
		synctest.Wait()
		if !has(found(s, "renewal"), certificatesv1.CertificateApproved) {
			t.Error("the request is not approved after a binding was created")
		}
	}, renewal(t))
}

func TestRenewalWithoutReviews(t *testing.T) {
	other := renewal(t)
	other.Name, other.UID, other.Spec.Username, other.Spec.Groups = "other", "other", "jane", nil
	controlling(t, nil, func(t *testing.T, s *clienttest.Server) {
		if !has(found(s, "renewal"), certificatesv1.CertificateApproved) || has(found(s, "other"), certificatesv1.CertificateApproved) {
			t.Error("want the request of the node to be approved, and not that of the user")
		}
	}, renewal(t), other)
}

// approved returns a request to a signer that was approved just now.
func approved(name, signer string, request []byte) *signingRequest {
	r := &signingRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: request, Usages: usages("client auth, digital signature")},
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, LastUpdateTime: metav1.Now()}}
	return r
}

func TestRequestAgainstTheRulesFails(t *testing.T) {
	controlling(t, nil, func(t *testing.T, s *clienttest.Server) {
		s.Set(t,
			approved("bad", certificatesv1.KubeletServingSignerName, encoded(t, asked("o=system:nodes cn=system:node:n1 dns=n1"))),
			approved("foreign", "example.com/a", encoded(t, asked("cn=x"))))
		synctest.Wait()
		c := found(s, "bad").Status.Conditions
		if len(c) != 2 || c[1].Type != certificatesv1.CertificateFailed || c[1].Reason != "SignerValidationFailure" ||
			c[1].Message != "usages did not match [digital signature key encipherment server auth]" || c[1].LastUpdateTime.IsZero() {
			t.Errorf("the conditions are %+v", c)
		}
		if r := found(s, "foreign"); len(r.Status.Conditions) != 1 || issued(r) {
			t.Errorf("the status of another signer's request is %+v", r.Status)
		}
	})
}

// TestOldRequestsAreDeleted checks that each request is deleted at its time, and that an authority that cannot sign does
// not keep its request.
func TestOldRequestsAreDeleted(t *testing.T) {
	controlling(t, nil, func(t *testing.T, s *clienttest.Server) {
		pending := approved("pending", "example.com/a", nil)
		pending.Status.Conditions, pending.CreationTimestamp = nil, metav1.Now()
		denied := approved("denied", "example.com/a", nil)
		denied.Status.Conditions[0].Type = certificatesv1.CertificateDenied
		s.Set(t, pending, denied, approved("unsigned", certificatesv1.KubeAPIServerClientSignerName, encoded(t, asked("cn=jane"))))
		for _, step := range []struct {
			after time.Duration
			left  int
		}{{time.Hour - time.Second, 3}, {2 * time.Second, 2}, {23*time.Hour - 2*time.Second, 2}, {2 * time.Second, 0}} {
			time.Sleep(step.after) // of the bubble
			synctest.Wait()
			if left := clienttest.All(s, client.CertificateSigningRequests, ""); len(left) != step.left {
				t.Errorf("%d requests are left, want %d", len(left), step.left)
			}
		}
	})
}
