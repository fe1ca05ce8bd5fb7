package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// endsAt returns a certificate that ends at a time.
func endsAt(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestWhenRequestsAreDeleted(t *testing.T) {
	made := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	decided := made.Add(10 * time.Hour)
	conditions := func(types ...certificatesv1.RequestConditionType) (all []certificatesv1.CertificateSigningRequestCondition) {
		for _, c := range types {
			all = append(all, certificatesv1.CertificateSigningRequestCondition{Type: c, LastUpdateTime: metav1.NewTime(decided)})
		}
		return all
	}
	for _, tt := range []struct {
		name        string
		conditions  []certificatesv1.CertificateSigningRequestCondition
		certificate []byte
		want        time.Time // zero: never
	}{
		{"pending", nil, nil, made.Add(24 * time.Hour)},
		{"denied", conditions("Denied"), nil, decided.Add(time.Hour)},
		{"failed", conditions("Approved", "Failed"), nil, decided.Add(time.Hour)},
		{"approved", conditions("Approved"), nil, decided.Add(24 * time.Hour)},
		{"issued", conditions("Approved"), endsAt(t, decided.Add(48*time.Hour)), decided.Add(time.Hour)},
		{"expired", conditions("Approved"), endsAt(t, decided.Add(time.Minute)), decided.Add(time.Minute)},
		{"issued, but unreadable", conditions("Approved"), []byte("x"), decided.Add(time.Hour)},
		{"another condition", conditions("Other"), nil, time.Time{}},
		{"without a time", []certificatesv1.CertificateSigningRequestCondition{{Type: "Denied"}}, nil, time.Time{}},
	} {
		r := &signingRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
		r.Status.Conditions, r.Status.Certificate = tt.conditions, tt.certificate
		if at, ok := deleteAt(r); !at.Equal(tt.want) || ok == tt.want.IsZero() {
			t.Errorf("%s: at %s (%t), want %s", tt.name, at, ok, tt.want)
		}
	}
}
