package certificates

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	// longest is how long a certificate is valid if the request does not say it, and at most.
	longest = 365 * 24 * time.Hour

	// shortest is the least time that the API server accepts in a request.
	shortest = 10 * time.Minute

	// skew makes certificates valid for clients whose clock is a little behind.
	skew = 5 * time.Minute

	// short certificates are valid for the whole time from now on. Others end earlier by skew.
	short = 8 * time.Hour
)

// template returns the certificate for a request, without its serial number. It ends at limit, when that of the authority
// ends, or before.
func template(request *x509.CertificateRequest, spec *certificatesv1.CertificateSigningRequestSpec, now, limit time.Time) (*x509.Certificate, error) {
	if !now.Before(limit) {
		return nil, fmt.Errorf("refusing to sign a certificate that expired in the past: NotAfter=%v", limit)
	}
	life := longest
	if s := spec.ExpirationSeconds; s != nil {
		life = max(shortest, min(longest, time.Duration(*s)*time.Second))
	}
	end := now.Add(life)
	if life >= short {
		end = end.Add(-skew)
	}
	if end.After(limit) {
		end = limit
	}
	c := &x509.Certificate{
		Subject:               request.Subject,
		DNSNames:              request.DNSNames,
		IPAddresses:           request.IPAddresses,
		EmailAddresses:        request.EmailAddresses,
		URIs:                  request.URIs,
		NotBefore:             now.Add(-skew),
		NotAfter:              end,
		BasicConstraintsValid: true,
	}
	extended := map[x509.ExtKeyUsage]bool{}
	for _, u := range spec.Usages {
		if bit, ok := keyUsages()[u]; ok {
			c.KeyUsage |= bit
		} else if e, ok := extendedUsages()[u]; ok {
			extended[e] = true
		} else {
			return nil, fmt.Errorf("unrecognized usage values: %q", []certificatesv1.KeyUsage{u})
		}
	}
	c.ExtKeyUsage = slices.Sorted(maps.Keys(extended))
	return c, nil
}

func keyUsages() map[certificatesv1.KeyUsage]x509.KeyUsage {
	return map[certificatesv1.KeyUsage]x509.KeyUsage{
		certificatesv1.UsageSigning:           x509.KeyUsageDigitalSignature,
		certificatesv1.UsageDigitalSignature:  x509.KeyUsageDigitalSignature,
		certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
		certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
		certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
		certificatesv1.UsageCertSign:          x509.KeyUsageCertSign,
		certificatesv1.UsageCRLSign:           x509.KeyUsageCRLSign,
		certificatesv1.UsageEncipherOnly:      x509.KeyUsageEncipherOnly,
		certificatesv1.UsageDecipherOnly:      x509.KeyUsageDecipherOnly,
	}
}

func extendedUsages() map[certificatesv1.KeyUsage]x509.ExtKeyUsage {
	return map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
		certificatesv1.UsageAny:             x509.ExtKeyUsageAny,
		certificatesv1.UsageServerAuth:      x509.ExtKeyUsageServerAuth,
		certificatesv1.UsageClientAuth:      x509.ExtKeyUsageClientAuth,
		certificatesv1.UsageCodeSigning:     x509.ExtKeyUsageCodeSigning,
		certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageSMIME:           x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageIPsecEndSystem:  x509.ExtKeyUsageIPSECEndSystem,
		certificatesv1.UsageIPsecTunnel:     x509.ExtKeyUsageIPSECTunnel,
		certificatesv1.UsageIPsecUser:       x509.ExtKeyUsageIPSECUser,
		certificatesv1.UsageTimestamping:    x509.ExtKeyUsageTimeStamping,
		certificatesv1.UsageOCSPSigning:     x509.ExtKeyUsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC:    x509.ExtKeyUsageMicrosoftServerGatedCrypto,
		certificatesv1.UsageNetscapeSGC:     x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
}
