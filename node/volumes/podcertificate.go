package volumes

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/node/references"
	"github.com/sampan-io/sampan/node/volume"
)

// overdue is how long a renewal may take until an event reports it, as with kubelet.
const overdue = 10 * time.Minute

// Reasons of events about certificates that are too old, as kubelet has them.
const (
	certificateOverdue = "CertificateOverdueForRefresh"
	certificateExpired = "CertificateExpired"
)

// certificateRetry is the pause before a certificate is looked for again.
const certificateRetry = 10 * time.Second

// refreshJitter spreads the renewals of certificates that were issued together, as kubelet does.
const refreshJitter = 5 * time.Minute

// A credential is the state of one podCertificate source of a volume (KEP-4317). It is kept in memory beside the volumes, so
// that a restart of the agent needs no new certificate.
type credential struct {
	Key, Chain []byte    // in PEM; empty until a certificate is issued
	Refresh    time.Time // when a new one is requested
	End        time.Time // of the validity; zero if it is not known
	Told       string    // the last event about a certificate that is too old; empty if there was none

	Request    string // name of the request that waits for its signer; empty if there is none
	RequestKey []byte // in PEM

	Refused string // why there will be no certificate; empty if no signer has refused one

	RefusedBy string // the condition of the request with that
}

// state returns the name that metrics have for the state of a credential.
func (c *credential) state(now time.Time) string {
	switch {
	case c.Refused != "" && c.RefusedBy == certificatesv1.PodCertificateRequestConditionTypeDenied:
		return "denied"
	case c.Refused != "":
		return "failed"
	case len(c.Chain) == 0:
		return "not_yet_issued"
	case !c.End.IsZero() && now.After(c.End):
		return "expired"
	case now.After(c.Refresh.Add(overdue)):
		return "overdue_for_refresh"
	}
	return "fresh"
}

// CertificateStates counts the certificates in the volumes of a pod by signer and state.
func (f *Files) CertificateStates(pod *corev1.Pod, now time.Time, count func(signer, state string)) {
	if f.root == "" || !references.Certified(pod) {
		return
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			s := v.Projected.Sources[j].PodCertificate
			if s == nil {
				continue
			}
			if c, err := readCredential(f.credentialFile(pod, v, j)); err == nil {
				count(s.SignerName, c.state(now))
			}
		}
	}
}

// credentialFile returns the file with the state of a source of a volume. No volume has a name with a dot.
func (f *Files) credentialFile(pod *corev1.Pod, v *corev1.Volume, index int) string {
	return filepath.Join(f.memory(pod.UID), ".certificates", fmt.Sprintf("%s-%d", v.Name, index))
}

// certificate puts a key and its certificates into p, and returns when they have to be replaced. It requests a certificate
// if there is none, or if it is time for a new one. While the first request waits for its signer, that is an error.
func (f *Files) certificate(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, index int, mode int32, p volume.Payload) (time.Time, error) {
	if f.root == "" {
		return time.Time{}, nil // no process would read it
	}
	s := v.Projected.Sources[index].PodCertificate
	file := f.credentialFile(pod, v, index)
	c, err := readCredential(file)
	if err != nil {
		return time.Time{}, err
	}
	before := c
	err = f.renew(ctx, pod, s, &c, time.Now())
	if c.Refused != "" && before.Refused == "" {
		f.node.Recorder.Event(pod, corev1.EventTypeWarning, c.RefusedBy, "%s", c.Refused)
	}
	due := f.reportAge(pod, &c, time.Now())
	if c.Request != before.Request || c.Refused != before.Refused || c.Told != before.Told {
		err = errors.Join(err, writeCredential(file, &c))
	}
	if err != nil && (len(c.Chain) == 0 || c.Refused != "") {
		return time.Time{}, err
	}
	for path, data := range map[string][]byte{
		s.CredentialBundlePath: slices.Concat(c.Key, c.Chain), s.KeyPath: c.Key, s.CertificateChainPath: c.Chain,
	} {
		if path != "" {
			p[path] = private(pod, data, mode)
		}
	}
	switch {
	case err != nil: // the pod has a certificate, and keeps it until there is a new one
		f.node.Log.Warn("renewing the certificate of a pod failed, will try again", "pod", pod.Namespace+"/"+pod.Name, "volume", v.Name, "err", err)
		return time.Now().Add(certificateRetry), nil
	case c.Request != "":
		return due, nil // the answer to the request comes first
	}
	return c.Refresh, nil
}

// reportAge reports a certificate whose renewal is overdue, and one that has expired, in an event each. It returns when to look again;
// zero means never.
func (f *Files) reportAge(pod *corev1.Pod, c *credential, now time.Time) time.Time {
	if len(c.Chain) == 0 {
		return time.Time{}
	}
	late := c.Refresh.Add(overdue)
	if c.Told == "" && now.After(late) {
		c.Told = certificateOverdue
		f.node.Recorder.Event(pod, corev1.EventTypeWarning, certificateOverdue, "PodCertificate refresh overdue")
	}
	if c.Told != certificateExpired && !c.End.IsZero() && now.After(c.End) {
		c.Told = certificateExpired
		f.node.Recorder.Event(pod, corev1.EventTypeWarning, certificateExpired, "PodCertificate expired")
	}
	const after = time.Second // certificates have whole seconds
	switch {
	case c.Told == "" && (c.End.IsZero() || late.Before(c.End)):
		return late.Add(after)
	case c.Told != certificateExpired && !c.End.IsZero():
		return c.End.Add(after)
	}
	return time.Time{}
}

// renew brings a credential up to date: it makes a request if one is due, and takes the answer to it.
func (f *Files) renew(ctx context.Context, pod *corev1.Pod, s *corev1.PodCertificateProjection, c *credential, now time.Time) error {
	if c.Refused != "" {
		return errors.New(c.Refused)
	}
	if c.Request == "" && now.Before(c.Refresh) {
		return nil
	}
	requests, err := f.node.References.CertificateRequests(ctx)
	if err != nil {
		return err
	}
	if c.Request == "" {
		made, key, err := f.requestCertificate(ctx, pod, s)
		if err != nil {
			return err
		}
		c.Request, c.RequestKey = made.Name, key
		if err := requests.Await(ctx, made.ResourceVersion); err != nil {
			return err
		}
	}
	name := pod.Namespace + "/" + c.Request
	request, ok := requests.Get(pod.Namespace, c.Request)
	if !ok {
		c.Request, c.RequestKey = "", nil
		return fmt.Errorf("PodCertificateRequest %q appears to have been deleted", name)
	}
	c.answer(request)
	switch {
	case c.Refused != "":
		return errors.New(c.Refused)
	case len(c.Chain) == 0:
		return fmt.Errorf("PodCertificateRequest %q is not issued yet", name)
	}
	return nil
}

// answer takes the answer of the signer, if there is one. A certificate that is refused is not requested again.
func (c *credential) answer(r *certificatesv1.PodCertificateRequest) {
	refuse := func(verb string, condition *metav1.Condition) {
		c.RefusedBy = condition.Type
		c.Refused = fmt.Sprintf("PodCertificateRequest %s/%s %s, reason=%q, message=%q", r.Namespace, r.Name, verb, condition.Reason, condition.Message)
		c.Request, c.RequestKey = "", nil
	}
	for i := range r.Status.Conditions {
		condition := &r.Status.Conditions[i]
		if condition.Status != metav1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			refuse("was denied", condition)
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			refuse("failed", condition)
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			if r.Status.BeginRefreshAt == nil {
				continue // the server requires it
			}
			*c = credential{Key: c.RequestKey, Chain: references.InPEM(references.CertificatesIn(r.Status.CertificateChain)), Refresh: r.Status.BeginRefreshAt.Add(rand.N(refreshJitter))}
			if r.Status.NotAfter != nil {
				c.End = r.Status.NotAfter.Time
			}
		default:
			continue
		}
		return
	}
}

// requestCertificate makes a key and requests a certificate for it. It returns the key in PEM.
func (f *Files) requestCertificate(ctx context.Context, pod *corev1.Pod, s *corev1.PodCertificateProjection) (*certificatesv1.PodCertificateRequest, []byte, error) {
	account, err := client.ServiceAccounts.Get(ctx, f.node.Client, pod.Namespace, cmp.Or(pod.Spec.ServiceAccountName, "default"))
	if err != nil {
		return nil, nil, fmt.Errorf("while fetching service account: %w", err)
	}
	node, err := client.Nodes.Get(ctx, f.node.Client, "", f.node.Name)
	if err != nil {
		return nil, nil, fmt.Errorf("while getting node object: %w", err)
	}
	key, err := newKey(s.KeyType)
	if err != nil {
		return nil, nil, err
	}
	proof, err := x509.CreateCertificateRequest(cryptorand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("while generating stub PKCS#10 request: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("while marshaling key to PKCS#8: %w", err)
	}
	made, err := client.PodCertificateRequests.Create(ctx, f.node.Client, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: s.SignerName,
			PodName:    pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(f.node.Name), NodeUID: node.UID,
			MaxExpirationSeconds:      s.MaxExpirationSeconds,
			StubPKCS10Request:         proof,
			UnverifiedUserAnnotations: s.UserAnnotations,
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("while creating PodCertificateRequest: %w", err)
	}
	return made, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// newKey returns a new private key of a type of podCertificate sources.
func newKey(keyType string) (crypto.Signer, error) {
	switch keyType {
	case "RSA3072":
		return rsa.GenerateKey(cryptorand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(cryptorand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), cryptorand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), cryptorand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(cryptorand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("unknown key type %q", keyType)
}

// readCredential reads a credential; without a file it is empty.
func readCredential(file string) (credential, error) {
	var c credential
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return credential{}, nil // the agent ended while it wrote the file: a new certificate replaces it
	}
	return c, nil
}

// writeCredential writes a credential for the agent alone.
func writeCredential(file string, c *credential) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(file)), 0o711); err != nil { // containers' users reach their own files
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}
