package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// An Authority signs certificates. It is safe for concurrent use.
type Authority interface {
	// Sign returns the certificate that the template describes, in DER, for the holder of the private key that belongs
	// to public. It chooses the serial number.
	Sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error)

	// NotAfter returns when the certificate of the authority itself ends.
	NotAfter() time.Time
}

// Options configures the controllers. Client and Authority are required.
type Options struct {
	controller.Config

	// Authority issues the certificates for Kubernetes' own signers.
	Authority Authority

	// RootCA is the certificate of the API server's authority in PEM, which is published in a ClusterTrustBundle. If it
	// is empty, there is no such bundle.
	RootCA []byte

	// Servers are the API server and other servers of the cluster.
	Servers Servers
}

// Servers are servers of a cluster that are no nodes. No node gets a serving certificate for one of their names or addresses.
type Servers struct {
	Names    []string // and addresses
	Networks []netip.Prefix
}

// controllers is the common part of the three loops.
type controllers struct {
	client    client.Interface
	requests  *cache.Cache[*signingRequest]
	authority Authority
	signers   map[string]rule
	nodes     *cache.Cache[*corev1.Node]
	servers   Servers
	reserved  reservations
	log       *slog.Logger
}

// Tasks returns the controllers, to be run together as one stage.
func Tasks(opts Options) []run.Task {
	config, caches := opts.WithDefaults()
	shared := config
	config = config.For("certificate-controller")
	c := &controllers{
		client:    config.Client,
		requests:  cache.Of(config.Caches, client.CertificateSigningRequests, nil),
		authority: opts.Authority,
		signers:   signers(),
		nodes:     cache.Of(config.Caches, client.Nodes, nil),
		servers:   opts.Servers,
		log:       config.Log,
	}
	roles := cache.Of(config.Caches, client.ClusterRoles, nil)
	bindings := cache.Of(config.Caches, client.ClusterRoleBindings, nil)
	c.requests.Subscribe(c.reserved.observe) // before the loops read it
	loop := func(name string, workers int, reconcile func(context.Context, controller.Key) (controller.Result, error), needs ...<-chan struct{}) *controller.Loop {
		l := controller.New(controller.Options{
			Name: "certificatesigningrequest-" + name + "-controller", Reconcile: reconcile,
			Workers: workers, Log: config.Log, Needs: append(needs, c.requests.Ready()),
			Object: controller.ObjectOf(c.requests), Quarantine: config.Quarantine,
		})
		c.requests.Subscribe(func(_, after *signingRequest) {
			if after != nil {
				l.Add(controller.KeyOf(after))
			}
		})
		return l
	}
	// One worker: whether a request is approved depends on the approvals before it (certificates-C5).
	approver := loop("approving", 1, c.approve, roles.Ready(), bindings.Ready(), c.nodes.Ready())
	again := func() {
		for _, r := range c.requests.List("") {
			if undecided(r) {
				approver.Add(controller.KeyOf(r))
			}
		}
	}
	roles.Subscribe(func(_, _ *rbacv1.ClusterRole) { again() })
	bindings.Subscribe(func(_, _ *rbacv1.ClusterRoleBinding) { again() })
	serving := loop(servingApprover, config.Workers, c.approveServing, c.nodes.Ready())
	c.nodes.Subscribe(func(before, after *corev1.Node) {
		if after == nil {
			c.reserved.release(before.Name)
			return
		}
		if before != nil && slices.Equal(before.Status.Addresses, after.Status.Addresses) {
			return
		}
		for _, r := range c.requests.List("") {
			if undecided(r) && r.Spec.SignerName == certificatesv1.KubeletServingSignerName {
				serving.Add(controller.KeyOf(r))
			}
		}
	})
	tasks := []run.Task{
		caches,
		approver.Task(),
		serving.Task(),
		loop("signing", config.Workers, c.sign).Task(),
		loop("cleaner", config.Workers, c.clean).Task(),
		newPodRequestCleaner(shared.For("podcertificaterequestcleaner")).Task(),
	}
	if len(opts.RootCA) > 0 {
		tasks = append(tasks, newPublisher(shared.For("kube-apiserver-serving-clustertrustbundle-publisher"), opts.RootCA).Task())
	}
	return tasks
}

// sign issues the certificate of an approved request to one of Kubernetes' signers, or records why there is none.
func (c *controllers) sign(ctx context.Context, key controller.Key) (controller.Result, error) {
	r, ok := c.requests.Get("", key.Name)
	if !ok || r.DeletionTimestamp != nil || !signable(r) {
		return controller.Result{}, nil
	}
	check, ours := c.signers[r.Spec.SignerName]
	if !ours {
		return controller.Result{}, nil
	}
	request, err := parse(r)
	if err != nil {
		return controller.Result{}, err
	}
	answered := r.DeepCopy()
	if fault := check(request, r.Spec.Usages); fault != nil {
		answered.Status.Conditions = append(answered.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue,
			Reason: "SignerValidationFailure", Message: fault.Error(), LastUpdateTime: metav1.Now(),
		})
		return controller.Result{}, c.update(ctx, answered, "status", "error adding failure condition for csr")
	}
	if answered.Status.Certificate, err = c.issue(request, r, time.Now()); err != nil {
		return controller.Result{}, fmt.Errorf("error auto signing csr: %w", err)
	}
	return controller.Result{}, c.update(ctx, answered, "status", "error updating signature for csr")
}

// issue returns the certificate for a request, in PEM.
func (c *controllers) issue(request *x509.CertificateRequest, r *signingRequest, now time.Time) ([]byte, error) {
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("unable to verify certificate request signature: %w", err)
	}
	t, err := template(request, &r.Spec, now, c.authority.NotAfter())
	if err != nil {
		return nil, err
	}
	der, err := c.authority.Sign(t, request.PublicKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// update writes a subresource of a request and waits until the cache has it. It is a no-op if the request was deleted.
func (c *controllers) update(ctx context.Context, r *signingRequest, subresource, failure string) error {
	now, err := client.CertificateSigningRequests.Update(ctx, c.client, r, subresource)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", failure, err)
	}
	return c.requests.Await(ctx, now.ResourceVersion)
}
