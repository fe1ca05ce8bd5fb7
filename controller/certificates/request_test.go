package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// asked returns a request for a node: "o=GROUP cn=NAME dns=NAME ip=ADDRESS mail=ADDRESS uri=URI".
func asked(text string) *x509.CertificateRequest {
	r := &x509.CertificateRequest{}
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "o":
			r.Subject.Organization = append(r.Subject.Organization, value)
		case "cn":
			r.Subject.CommonName = value
		case "dns":
			r.DNSNames = append(r.DNSNames, value)
		case "ip":
			r.IPAddresses = append(r.IPAddresses, net.ParseIP(value))
		case "mail":
			r.EmailAddresses = append(r.EmailAddresses, value)
		case "uri":
			r.URIs = append(r.URIs, &url.URL{Scheme: "spiffe", Host: value})
		}
	}
	return r
}

// encoded returns a request as a CertificateSigningRequest carries it, signed with a new key.
func encoded(t testing.TB, r *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// usages reads "client auth, digital signature".
func usages(text string) (all []certificatesv1.KeyUsage) {
	for u := range strings.SplitSeq(text, ", ") {
		all = append(all, certificatesv1.KeyUsage(u))
	}
	return all
}

func TestRulesOfSigners(t *testing.T) {
	const (
		client  = "kubernetes.io/kube-apiserver-client"
		kubelet = "kubernetes.io/kube-apiserver-client-kubelet"
		serving = "kubernetes.io/kubelet-serving"
		legacy  = "kubernetes.io/legacy-unknown"

		forClient  = "client auth, key encipherment, digital signature"
		forServing = "server auth, key encipherment, digital signature"
		node       = "o=system:nodes cn=system:node:n1"
	)
	for _, tt := range []struct{ name, signer, request, usages, want string }{
		{"a user", client, "cn=jane o=dev", forClient, ""},
		{"a user without other usages", client, "cn=jane", "client auth", ""},
		{"a user who serves", client, "cn=jane", "client auth, server auth", "invalid usage for client certificate: server auth"},
		{"a user who is no client", client, "cn=jane", "digital signature", "missing required usage for client certificate: client auth"},

		{"a node", kubelet, node, forClient, ""},
		{"a node without RSA", kubelet, node, "digital signature, client auth", ""},
		{"a node of another group", kubelet, "o=dev cn=system:node:n1", forClient, "subject organization is not system:nodes"},
		{"a node of two groups", kubelet, "o=dev " + node, forClient, "subject organization is not system:nodes"},
		{"a node with a host name", kubelet, node + " dns=n1", forClient, "DNS subjectAltNames are not allowed"},
		{"a node with mail", kubelet, node + " mail=a@b", forClient, "Email subjectAltNames are not allowed"},
		{"a node with an address", kubelet, node + " ip=10.0.0.1", forClient, "IP subjectAltNames are not allowed"},
		{"a node with a URI", kubelet, node + " uri=x", forClient, "URI subjectAltNames are not allowed"},
		{"no node", kubelet, "o=system:nodes cn=jane", forClient, "subject common name does not begin with system:node:"},
		{"a node that serves", kubelet, node, forServing, "usages did not match [client auth digital signature key encipherment]"},

		{"a server", serving, node + " ip=10.0.0.1", forServing, ""},
		{"a server without RSA", serving, node + " dns=n1", "digital signature, server auth", ""},
		{"a server of another group", serving, "cn=system:node:n1 dns=n1", forServing, "subject organization is not system:nodes"},
		{"a server without addresses", serving, node, forServing, "DNS or IP subjectAltName is required"},
		{"a server with mail", serving, node + " dns=n1 mail=a@b", forServing, "Email subjectAltNames are not allowed"},
		{"a server with a URI", serving, node + " dns=n1 uri=x", forServing, "URI subjectAltNames are not allowed"},
		{"a server that is a client", serving, node + " dns=n1", forClient, "usages did not match [digital signature key encipherment server auth]"},
		{"no server", serving, "o=system:nodes cn=jane dns=n1", forServing, "subject common name does not begin with system:node:"},

		{"anything", legacy, "cn=x uri=x", "any", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := signers()[tt.signer](asked(tt.request), usages(tt.usages)); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestRightsThatApprove(t *testing.T) {
	for _, tt := range []struct{ name, signer, user, usages, want string }{
		{"a node for itself", "kubernetes.io/kube-apiserver-client-kubelet", "system:node:n1", "client auth, digital signature", "selfnodeclient nodeclient"},
		{"a bootstrap token", "kubernetes.io/kube-apiserver-client-kubelet", "system:bootstrap:abc", "client auth, digital signature", "nodeclient"},
		{"other usages", "kubernetes.io/kube-apiserver-client-kubelet", "system:node:n1", "server auth, digital signature", ""},
		{"another signer", "kubernetes.io/kube-apiserver-client", "system:node:n1", "client auth, digital signature", ""},
		{"a server", "kubernetes.io/kubelet-serving", "system:node:n1", "server auth, digital signature", ""},
	} {
		r := &signingRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: tt.signer, Username: tt.user, Usages: usages(tt.usages)}}
		var got []string
		for _, right := range rightsFor(r, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}) {
			got = append(got, right.subresource)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestWithoutReviewsNodesRenewTheirOwn(t *testing.T) {
	r := &signingRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Groups: []string{"system:nodes", "system:authenticated"}}}
	if !mayRenew(r, "selfnodeclient") || mayRenew(r, "nodeclient") || mayRenew(&signingRequest{}, "selfnodeclient") {
		t.Error("others than nodes for themselves may renew")
	}
}

func TestParseNamesTheRequest(t *testing.T) {
	r := &signingRequest{}
	r.Name = "r"
	for data, want := range map[string]string{
		"": "PEM block type must be CERTIFICATE REQUEST",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"})):         "PEM block type must be CERTIFICATE REQUEST",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"})): "asn1",
		string(encoded(t, asked("cn=jane"))):                                "",
	} {
		r.Spec.Request = []byte(data)
		_, err := parse(r)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), `unable to parse csr "r": `)) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
}
