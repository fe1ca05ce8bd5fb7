package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
)

func TestHowLongCertificatesAreValid(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const year = 365 * 24 * time.Hour
	seconds := func(d time.Duration) *int32 { s := int32(d / time.Second); return &s }
	for _, tt := range []struct {
		name  string
		asked *int32
		limit time.Duration // from now
		want  time.Duration // from now; 0: refused
	}{
		{"a year", nil, 10 * year, year - 5*time.Minute},
		{"as asked for", seconds(24 * time.Hour), 10 * year, 24*time.Hour - 5*time.Minute},
		{"a short one", seconds(time.Hour), 10 * year, time.Hour},
		{"not shorter than ten minutes", seconds(time.Minute), 10 * year, 10 * time.Minute},
		{"not longer than a year", seconds(20 * year), 30 * year, year - 5*time.Minute},
		{"not longer than the authority", nil, time.Hour, time.Hour},
		{"the authority has ended", nil, 0, 0},
	} {
		c, err := template(asked("cn=jane"), &certificatesv1.CertificateSigningRequestSpec{ExpirationSeconds: tt.asked}, now, now.Add(tt.limit))
		switch {
		case (err != nil) != (tt.want == 0):
			t.Errorf("%s: %v", tt.name, err)
		case err == nil && (c.NotAfter.Sub(now) != tt.want || !c.NotBefore.Equal(now.Add(-5*time.Minute))):
			t.Errorf("%s: from %s to %s, want %s from now", tt.name, c.NotBefore, c.NotAfter, tt.want)
		}
	}
}

func TestCertificatesHaveRequestedFields(t *testing.T) {
	now := time.Now()
	request := asked("cn=system:node:n1 o=system:nodes dns=n1 ip=10.0.0.1 mail=a@b uri=x")
	spec := &certificatesv1.CertificateSigningRequestSpec{Usages: usages("server auth, key encipherment, client auth, signing, s/mime, email protection")}
	c, err := template(request, spec, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	want := x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, EmailAddresses: request.EmailAddresses, URIs: request.URIs,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageEmailProtection},
		NotBefore:   now.Add(-5 * time.Minute), NotAfter: now.Add(time.Hour), BasicConstraintsValid: true,
	}
	if diff := cmp.Diff(&want, c); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	spec.Usages = usages("flying")
	if _, err := template(request, spec, now, now.Add(time.Hour)); err == nil || err.Error() != `unrecognized usage values: ["flying"]` {
		t.Errorf("err = %v", err)
	}
}
