package join

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
)

// A purpose is the use of a certificate of a node.
type purpose struct {
	signer    string
	usages    []certificatesv1.KeyUsage
	names     []string
	addresses []netip.Addr
}

// asClient is the purpose of the certificate by which a node is known to the API server.
func asClient() purpose {
	return purpose{
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}
}

// asServer is the purpose of the certificate by which the API server knows a node.
func asServer(name string, addresses []netip.Addr) purpose {
	return purpose{
		signer: certificatesv1.KubeletServingSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		names:  []string{name}, addresses: addresses,
	}
}

// A DeniedError says that a request for a certificate was denied or failed.
type DeniedError struct{ Reason, Message string }

func (e *DeniedError) Error() string {
	return fmt.Sprintf("the request for a certificate was refused (%s): %s", e.Reason, e.Message)
}

// request asks for a certificate of a node with a new key, and blocks until it is issued or refused, or ctx is cancelled.
func request(ctx context.Context, api client.Interface, node string, p purpose) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: p.names,
	}
	for _, a := range p.addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(a.AsSlice()))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, err
	}
	asked, err := client.CertificateSigningRequests.Create(ctx, api, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: p.signer, Usages: p.usages,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("requesting a certificate: %w", err)
	}
	cert, err := await(ctx, api, asked.Name)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		return nil, fmt.Errorf("the certificate that was issued for the request %s: %w", asked.Name, err)
	}
	return &pair, nil
}

// await returns the certificate of a request, in PEM, when it is issued.
func await(ctx context.Context, api client.Interface, name string) ([]byte, error) {
	f := follow.Follower{Client: api, Source: follow.Source{GroupVersionResource: client.CertificateSigningRequests.GroupVersionResource, Fields: "metadata.name=" + name}}
	for step := range f.Steps(ctx) {
		var objects []client.Object
		switch s := step.(type) {
		case follow.Page:
			objects = s.Objects
		case *follow.Changed:
			objects = []client.Object{s.Object}
		case follow.Deleted:
			return nil, fmt.Errorf("the request %s for a certificate was deleted before it was approved", name)
		case follow.Failed:
			if s.Final {
				return nil, fmt.Errorf("waiting for the certificate of the request %s: %w", name, s.Err)
			}
		}
		for _, o := range objects {
			r, ok := o.(*certificatesv1.CertificateSigningRequest)
			if !ok {
				continue
			}
			if len(r.Status.Certificate) > 0 {
				return r.Status.Certificate, nil
			}
			for _, c := range r.Status.Conditions {
				if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
					return nil, &DeniedError{c.Reason, c.Message}
				}
			}
		}
	}
	return nil, errors.Join(context.Cause(ctx), fmt.Errorf("the request %s for a certificate is not approved yet", name))
}
