package certificates

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
)

// machine returns a node that is Ready and has these internal addresses.
func machine(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestServingNamesAreTheNodesOwn(t *testing.T) {
	taken := Servers{Names: []string{"localhost", "192.0.2.1"}, Networks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	for _, tt := range []struct{ request, refused string }{
		{"dns=n2 ip=192.0.2.2", ""},
		{"dns=n2 ip=fd00::2", ""},
		{"dns=n1", "the name n1 is not that of the node"},
		{"dns=localhost", "the name localhost is not that of the node"},
		{"ip=192.0.2.99", "the address 192.0.2.99 is not in the status of the node"},
		{"ip=192.0.2.1", "192.0.2.1 is that of a server of the cluster"},
		{"ip=10.96.0.1", "10.96.0.1 is that of a server of the cluster"},
		{"ip=127.0.0.1", "127.0.0.1 is that of a server of the cluster"},
		{"ip=192.0.2.3", "192.0.2.3 is that of node n3"},
	} {
		node := machine("n2", "192.0.2.2", "fd00::2", "192.0.2.1", "10.96.0.1", "127.0.0.1", "192.0.2.3")
		all := []*corev1.Node{node, machine("n1", "192.0.2.1"), machine("n3", "192.0.2.3")}
		if got := outside(node, asked(tt.request), taken, all); got != tt.refused {
			t.Errorf("%s is refused because %q, want %q", tt.request, got, tt.refused)
		}
	}
	for _, name := range []string{"kubernetes.default.svc", "web.default.svc.cluster.local", "LOCALHOST"} {
		if got := outside(machine(name), asked("dns="+name), taken, nil); !strings.HasSuffix(got, "is that of a server of the cluster") {
			t.Errorf("a node called %s gets a certificate for that", name)
		}
	}
}

// serving is the request of node n2 for its serving certificate.
func serving(t *testing.T, as, text string) *signingRequest {
	return &signingRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "serving", UID: "serving"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Request: encoded(t, asked(text)),
			Username: as, Groups: []string{"system:nodes"}, Usages: usages("server auth, digital signature"),
		},
	}
}

func nobody(*authorizationv1.SubjectAccessReviewSpec) bool { return false }

func TestServingCertificateWaitsForNode(t *testing.T) {
	request := serving(t, "system:node:n2", "o=system:nodes cn=system:node:n2 dns=n2 ip=192.0.2.2")
	controlling(t, nobody, func(t *testing.T, s *clienttest.Server) {
		if r := found(s, "serving"); len(r.Status.Conditions) > 0 {
			t.Fatalf("without a node the request has the conditions %+v", r.Status.Conditions)
		}
		s.Set(t, machine("n2"))
		synctest.Wait()
		if r := found(s, "serving"); len(r.Status.Conditions) > 0 {
			t.Fatalf("without the address the request has the conditions %+v", r.Status.Conditions)
		}
		s.Set(t, machine("n2", "192.0.2.2"))
		synctest.Wait()
		if r := found(s, "serving"); !has(r, certificatesv1.CertificateApproved) {
			t.Errorf("the request is not approved: %+v", r.Status)
		}
	}, request)
}

func TestServingCertificateOfAnotherNodeIsLeft(t *testing.T) {
	request := serving(t, "system:node:n3", "o=system:nodes cn=system:node:n2 dns=n2 ip=192.0.2.2")
	controlling(t, nobody, func(t *testing.T, s *clienttest.Server) {
		if r := found(s, "serving"); len(r.Status.Conditions) > 0 {
			t.Errorf("the request of another node has the conditions %+v", r.Status.Conditions)
		}
	}, request, machine("n2", "192.0.2.2"), machine("n3", "192.0.2.3"))
}

func TestNamesThatNoNodeGets(t *testing.T) {
	c := &controllers{
		servers: Servers{Names: []string{"kubernetes", "localhost"}},
		nodes:   cache.Of(cache.NewShared(clienttest.New(t), nil), client.Nodes, nil),
	}
	for name, refused := range map[string]bool{
		"n2": false, "n2.example": false,
		"": true, "ONE": true, "../x": true, "192.0.2.1": true, "kubernetes": true, "localhost": true, "web.default.svc": true,
	} {
		if reason, why := c.refuseName(name, time.Now()); (why != "") != refused || (reason == "InvalidName") != refused {
			t.Errorf("the name %q is refused: %q (%s), want %t", name, why, reason, refused)
		}
	}
}
