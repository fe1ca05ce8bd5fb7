package certificates_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/certificates"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/run"
)

// A testCluster is the real API server in memory with the controllers, which have the same rights as in a cluster.
type testCluster struct {
	*testing.T
	server    *apiserver.Server
	authority *pki.Authority
	ctx       context.Context //nolint:containedctx // as in testing.T: the test's own, with a limit
}

func openCluster(t *testing.T) *testCluster {
	t.Helper()
	authority, err := pki.Open(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c := &testCluster{T: t, authority: authority}
	c.server = apiservertest.Open(t, func(o *apiserver.Options) {
		may := rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All()), Objects: operation.NewReader(o.Catalog, o.Store)}).MayUseSigner
		o.Admission = []admission.Plugin{
			admission.NewCertificateApproval(may), admission.NewCertificateSigning(may),
			admission.CertificateSubjectRestriction{},
			admission.CertificateRequester{},
		}
	})
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	caches := cache.NewShared(c.as("system:kube-controller-manager"), log)
	tasks := certificates.Tasks(certificates.Options{
		Config:    controller.Config{Client: c.as("nobody"), As: func(name string) client.Interface { return c.server.As(controllertest.Account(name)) }, Caches: caches, Log: log},
		Authority: authority,
	})
	tasks = append(tasks, run.Task{Name: "caches", Run: caches.Run, Ready: caches.Ready()})
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) {
		if err := run.Stages(ctx, run.Stage(tasks)); err != nil {
			t.Errorf("the controllers ended with %v", err)
		}
	})
	t.Cleanup(g.Stop)
	return c
}

func (c *testCluster) as(name string, groups ...string) client.Interface {
	return c.server.As(auth.User{Name: name, Groups: append(groups, auth.GroupAuthenticated)})
}

// request posts a request for a certificate as a user.
func (c *testCluster) request(as client.Interface, name, signer string, template x509.CertificateRequest, usages ...certificatesv1.KeyUsage) *ecdsa.PrivateKey {
	c.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		c.Fatal(err)
	}
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	r.Spec.SignerName, r.Spec.Usages = signer, append(usages, certificatesv1.UsageDigitalSignature)
	if _, err := client.CertificateSigningRequests.Create(c.ctx, as, r); err != nil {
		c.Fatal(err)
	}
	return key
}

// approve does what kubectl certificate approve does.
func (c *testCluster) approve(as client.Interface, name string) error {
	r, err := client.CertificateSigningRequests.Get(c.ctx, as, "", name)
	if err != nil {
		return err
	}
	r = r.DeepCopy()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "KubectlApprove", Message: "This CSR was approved by kubectl certificate approve.",
	})
	_, err = client.CertificateSigningRequests.Update(c.ctx, as, r, "approval")
	return err
}

// issued waits for the certificate of a request, and verifies that the authority issued it for the key and the usage.
func (c *testCluster) issued(name string, key *ecdsa.PrivateKey, usage x509.ExtKeyUsage) (*certificatesv1.CertificateSigningRequest, *x509.Certificate) {
	c.Helper()
	boss := c.as("boss", auth.GroupMasters)
	for event, err := range client.CertificateSigningRequests.Watch(c.ctx, boss, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name}) {
		if err != nil {
			c.Fatalf("waiting for the certificate of %s: %v", name, err)
		}
		r, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || len(r.Status.Certificate) == 0 {
			continue
		}
		block, _ := pem.Decode(r.Status.Certificate)
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			c.Fatal(err)
		}
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: c.authority.Pool(), KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			c.Error(err)
		}
		if !key.PublicKey.Equal(certificate.PublicKey) {
			c.Error("the certificate is for another key")
		}
		return r, certificate
	}
	c.Fatalf("the watch for the certificate of %s ended", name)
	return nil, nil
}

func TestUserGetsCertificateAfterApproval(t *testing.T) {
	c := openCluster(t)
	boss, jane := c.as("boss", auth.GroupMasters), c.as("jane")
	subject := x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: []string{"dev"}}}
	key := c.request(boss, "jane", certificatesv1.KubeAPIServerClientSignerName, subject, certificatesv1.UsageClientAuth)
	if err := c.approve(jane, "jane"); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights approves: %v", err)
	}
	if err := c.approve(c.as("system:serviceaccount:kube-system:certificate-controller"), "jane"); err == nil ||
		err.Error() != `certificatesigningrequests.certificates.k8s.io "jane" is forbidden: user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"` {
		t.Errorf("the controllers approve for users: %v", err)
	}
	if err := c.approve(boss, "jane"); err != nil {
		t.Fatal(err)
	}
	r, certificate := c.issued("jane", key, x509.ExtKeyUsageClientAuth)
	if r.Spec.Username != "boss" || certificate.Subject.CommonName != "jane" || certificate.Subject.Organization[0] != "dev" || certificate.IsCA {
		t.Errorf("%s requested the certificate for %s", r.Spec.Username, certificate.Subject)
	}
	if left := time.Until(certificate.NotAfter); left < 364*24*time.Hour || left > 365*24*time.Hour {
		t.Errorf("valid for %s, want almost a year", left)
	}
}

func TestNodeRenewsItsCertificate(t *testing.T) {
	c := openCluster(t)
	node := c.as("system:node:n1", auth.GroupNodes)
	subject := x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	key := c.request(node, "client", certificatesv1.KubeAPIServerClientKubeletSignerName, subject, certificatesv1.UsageClientAuth)
	r, _ := c.issued("client", key, x509.ExtKeyUsageClientAuth)
	if got := r.Status.Conditions[0]; got.Reason != "AutoApproved" || got.Message != "Auto approving self kubelet client certificate after SubjectAccessReview." {
		t.Errorf("the condition is %+v", got)
	}

	subject.DNSNames = []string{"n1"}
	key = c.request(node, "serving", certificatesv1.KubeletServingSignerName, subject, certificatesv1.UsageServerAuth)
	if err := c.approve(c.as("boss", auth.GroupMasters), "serving"); err != nil {
		t.Fatal(err)
	}
	r, _ = c.issued("serving", key, x509.ExtKeyUsageServerAuth)
	if got := r.Status.Conditions; len(got) != 1 || got[0].Reason != "KubectlApprove" {
		t.Errorf("the conditions of a request for a serving certificate are %+v, want that of the user alone", got)
	}
}
