package certificates

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIssuedCertificateFitsTheRequest(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	own, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change  func(c *x509.Certificate)
		key     ed25519.PublicKey
		later   time.Duration // the clock
		refresh time.Duration // since the begin; 0 means an hour
		rest    string        // of the chain
		want    string        // part of the only error, or "" for none
	}{
		"good":            {},
		"another key":     {key: other, want: "leaf certificate was not issued to the requested public key"},
		"old":             {later: 6 * time.Minute, want: "must be set to within 5 minutes"},
		"short":           {change: func(c *x509.Certificate) { c.NotAfter = now.Add(time.Minute) }, want: "lifetime must be >= 1 hour"},
		"long":            {change: func(c *x509.Certificate) { c.NotAfter = now.Add(25 * time.Hour) }, want: "must be <= spec.maxExpirationSeconds (86400)"},
		"early refresh":   {refresh: time.Minute, want: "at least 10 minutes after status.notBefore"},
		"late refresh":    {refresh: 2 * time.Hour, want: "at least 10 minutes before status.notAfter"},
		"strange name":    {change: func(c *x509.Certificate) { c.DNSNames = []string{"a..b"} }, want: "should not contain '..'"},
		"strange address": {change: func(c *x509.Certificate) { c.EmailAddresses = []string{"a"} }, want: "invalid EmailAddress"},
		"strange chain":   {rest: "-----BEGIN KEY-----\n-----END KEY-----\n", want: "must consist entirely of"},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(2 * time.Hour)}
			if c.change != nil {
				c.change(leaf)
			}
			if c.key == nil {
				c.key = own
			}
			if c.refresh == 0 {
				c.refresh = time.Hour
			}
			der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, c.key, key)
			if err != nil {
				t.Fatal(err)
			}
			old := &podRequest{Spec: certificatesv1.PodCertificateRequestSpec{MaxExpirationSeconds: new(int32(defaultExpiration)), StubPKCS10Request: stub}}
			r := old.DeepCopy()
			r.Status = certificatesv1.PodCertificateRequestStatus{
				Conditions: []metav1.Condition{{
					Type: certificatesv1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.NewTime(now),
				}},
				CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})) + c.rest,
				NotBefore:        new(metav1.NewTime(leaf.NotBefore)),
				NotAfter:         new(metav1.NewTime(leaf.NotAfter)),
				BeginRefreshAt:   new(metav1.NewTime(now.Add(c.refresh))),
			}
			errs := validatePodRequestStatus(r, old, now.Add(c.later))
			switch {
			case c.want == "" && len(errs) == 0:
			case c.want == "" || len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want):
				t.Errorf("got %v, want %q", errs, c.want)
			}
		})
	}
}
