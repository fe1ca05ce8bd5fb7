package admission_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog/certificates"
)

func TestCertificateRequestsNameTheirUser(t *testing.T) {
	kind := certificates.Kinds()[0]
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Username: "root", Extra: map[string]certificatesv1.ExtraValue{"a": {"b"}},
	}}
	a := creating(kind, r)
	a.User = &auth.User{Name: "ann", UID: "7", Groups: []string{"web"}, Extra: map[string][]string{"c": {"d"}}}
	if err := (admission.CertificateRequester{}).Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if s := r.Spec; s.Username != "ann" || s.UID != "7" || !slices.Equal(s.Groups, []string{"web"}) || len(s.Extra) != 1 || !slices.Equal(s.Extra["c"], []string{"d"}) {
		t.Errorf("the request is of %+v", s)
	}
	a = updating(kind, r, r.DeepCopy())
	if err := (admission.CertificateRequester{}).Admit(t.Context(), a); err != nil || r.Spec.Username != "ann" {
		t.Errorf("an update changes the user to %q, %v", r.Spec.Username, err)
	}
}

// only returns an authorizer that allows one verb on one signer to jane.
func only(verb, signer string) admission.SignerAuthorizer {
	return func(_ context.Context, u *auth.User, v, s string) bool {
		return u.Name == "jane" && v == verb && s == signer
	}
}

func TestCertificateDecisionsNeedRights(t *testing.T) {
	const signer = "example.com/a"
	kind := certificates.Kinds()[0]
	old := &certificatesv1.CertificateSigningRequest{ObjectMeta: meta("", "r"), Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
	decided := old.DeepCopy()
	decided.Spec.SignerName = "example.com/own" // what is stored counts
	decided.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: "Approved"}}
	issued := old.DeepCopy()
	issued.Status.Certificate = []byte("x")
	const (
		mayNotApprove = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to approve requests with signerName "example.com/a"`
		mayNotSign    = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to sign requests with signerName "example.com/a"`
	)
	for _, tt := range []struct {
		name, sub string
		may       admission.SignerAuthorizer
		r         *certificatesv1.CertificateSigningRequest
		want      string
	}{
		{"approves", "approval", only("approve", signer), decided, ""},
		{"may only sign", "approval", only("sign", signer), decided, mayNotApprove},
		{"may approve for another signer", "approval", only("approve", "example.com/own"), decided, mayNotApprove},
		{"an approval without a change", "approval", only("sign", signer), old, mayNotApprove},
		{"signs", "status", only("sign", signer), issued, ""},
		{"may only approve", "status", only("approve", signer), issued, mayNotSign},
		{"a condition", "status", only("approve", signer), decided, mayNotSign},
		{"a status without a change", "status", only("approve", signer), old, ""},
		{"labels", "", only("", ""), issued, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := updating(kind, tt.r, old)
			a.Subresource = tt.sub
			got := ""
			for _, p := range []admission.Validator{admission.NewCertificateApproval(tt.may), admission.NewCertificateSigning(tt.may)} {
				if err := p.Validate(t.Context(), a); err != nil {
					got += err.Error()
				}
			}
			if got != tt.want {
				t.Errorf("\n%s, want\n%s", got, tt.want)
			}
		})
	}
}

// requestFor returns a request for a certificate in PEM.
func requestFor(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestNodesRequestTheirOwnCertificates(t *testing.T) {
	own, other := requestFor(t, pkix.Name{CommonName: "system:node:n1"}), requestFor(t, pkix.Name{CommonName: "system:node:n2"})
	const refused = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: `
	for _, tt := range []struct {
		signer  string
		request []byte
		want    string
	}{
		{"kubernetes.io/kubelet-serving", own, ""},
		{"kubernetes.io/kubelet-serving", other, refused + "can only create a node CSR with CN=system:node:n1"},
		{"kubernetes.io/kube-apiserver-client-kubelet", other, refused + "can only create a node CSR with CN=system:node:n1"},
		{"kubernetes.io/kubelet-serving", nil, refused + "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"},
		{"example.com/a", other, ""},
	} {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: meta("", "r"), Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: tt.signer, Request: tt.request}}
		a := creating(certificates.Kinds()[0], r)
		a.User = &auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}}
		got := ""
		if err := admission.NewNodeRestriction(newMemory(nil), nil).Admit(t.Context(), a); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("\n%s, want\n%s", got, tt.want)
		}
	}
}

// TestCertificateRequestsOfNodesAreLimited fills the store with requests of each kind of user.
func TestCertificateRequestsOfNodesAreLimited(t *testing.T) {
	const limit = 1000
	users := map[string]*auth.User{
		"token": {Name: "system:bootstrap:abcdef", Groups: []string{auth.GroupBootstrappers}},
		"node":  {Name: "system:node:n1", Groups: []string{auth.GroupNodes}},
		"other": {Name: "jane", Groups: []string{"web"}},
	}
	full, m := newMemory(nil), newMemory(nil)
	for name, u := range users {
		for i := range limit {
			r := &certificatesv1.CertificateSigningRequest{ObjectMeta: meta("", fmt.Sprint(name, i)), Spec: certificatesv1.CertificateSigningRequestSpec{Username: u.Name}}
			full.put("certificatesigningrequests", r)
			if i > 0 {
				m.put("certificatesigningrequests", r)
			}
		}
	}
	for _, tt := range []struct {
		user    string
		objects *memory
		size    int
		want    string
	}{
		{"token", m, 0, ""},
		{"token", full, 0, `user "system:bootstrap:abcdef" has 1000 requests for certificates, and may have at most 1000`},
		{"token", m, 16 << 10, "one of a node or a bootstrap token may have at most 16384"},
		{"node", m, 0, ""},
		{"node", full, 0, `user "system:node:n1" has 1000 requests for certificates`},
		{"node", m, 16 << 10, "one of a node or a bootstrap token may have at most 16384"},
		{"other", full, 16 << 10, ""},
	} {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: meta("", "r")}
		r.Annotations = map[string]string{"a": strings.Repeat("a", tt.size)} // any part counts
		a := creating(certificates.Kinds()[0], r)
		a.User = users[tt.user]
		err := admission.NewCertificateRequestLimit(tt.objects).Validate(t.Context(), a)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, %d bytes: got %v, want %q", tt.user, tt.size, err, tt.want)
		}
	}
}

func TestNobodyRequestsToBeMaster(t *testing.T) {
	kind := certificates.Kinds()[0]
	request := func(groups ...string) []byte { return requestFor(t, pkix.Name{Organization: groups}) }
	for _, tt := range []struct {
		signer  string
		request []byte
		want    string
	}{
		{"kubernetes.io/kube-apiserver-client", request("dev"), ""},
		{"kubernetes.io/kube-apiserver-client", request("dev", "system:masters"), "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		{"kubernetes.io/kube-apiserver-client", nil, "failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"},
		{"example.com/a", request("system:masters"), ""},
	} {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: meta("", "r"), Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: tt.signer, Request: tt.request}}
		got, want := "", tt.want
		if err := (admission.CertificateSubjectRestriction{}).Validate(t.Context(), creating(kind, r)); err != nil {
			got = err.Error()
		}
		if want != "" {
			want = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: ` + want
		}
		if got != want {
			t.Errorf("\n%s, want\n%s", got, want)
		}
	}
}
