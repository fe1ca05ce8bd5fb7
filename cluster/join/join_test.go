package join

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTokens(t *testing.T) {
	for range 100 {
		token := NewToken()
		if again, err := ParseToken(token.String()); err != nil || again != token {
			t.Fatalf("%s is read as %v, %v", token, again, err)
		}
	}
	for _, bad := range []string{"", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef\n", "abcdef.0123456789abcdef0"} {
		if _, err := ParseToken(bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestForeignSignature verifies a signature that another implementation has made: openssl dgst -sha256 -hmac.
func TestForeignSignature(t *testing.T) {
	token := Token{"abcdef", "0123456789abcdef"}
	const signature = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..psz1NayrXM3IaFzKZGsb5n_mBl7MjtlsZ1xE8MRmF_4"
	if err := token.verify("content", signature); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		token              Token
		content, signature string
	}{
		{Token{"abcdef", "0123456789abcdeg"}, "content", signature},
		{Token{"abcdeg", "0123456789abcdef"}, "content", signature},
		{token, "contents", signature},
		{token, "content", strings.Replace(signature, "..", ".Y29udGVudA.", 1)},
		{token, "content", strings.Replace(signature, "eyJhbGciOiJIUzI1NiI", "eyJhbGciOiJub25lIi", 1)},
		{token, "content", ""},
	} {
		if err := tt.token.verify(tt.content, tt.signature); err == nil {
			t.Errorf("%s of %q is accepted for %s", tt.signature, tt.content, tt.token.ID)
		}
	}
}

// A place is a server that answers as an API server with a ConfigMap does.
type place struct {
	*httptest.Server
	authority *pki.Authority
	data      map[string]string
	status    int
}

// open starts a server whose certificate is valid from a time on.
func open(t *testing.T, from time.Time) *place {
	t.Helper()
	p := &place{data: map[string]string{}, status: http.StatusOK}
	var err error
	if p.authority, err = pki.Open(t.TempDir(), from); err != nil {
		t.Fatal(err)
	}
	cert, err := p.authority.Issue(pki.Subject{CommonName: "kube-apiserver", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, from)
	if err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-public/configmaps/cluster-info" || r.Header.Get("Authorization") != "" || len(r.TLS.PeerCertificates) > 0 {
			t.Errorf("the request is %s %s %v", r.Method, r.URL, r.Header)
		}
		w.WriteHeader(p.status)
		_ = json.NewEncoder(w).Encode(corev1.ConfigMap{Data: p.data})
	}))
	p.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	p.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}}
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

func (p *place) address() string { return strings.TrimPrefix(p.URL, "https://") }

// sign publishes where the cluster is, signed by a token as the bootstrap signer does.
func (p *place) sign(t *testing.T, token Token, ca []byte) {
	t.Helper()
	p.data[KubeconfigKey] = "apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: " + base64Of(ca) + "}\n"
	p.data["jws-kubeconfig-"+token.ID] = signed(token, p.data[KubeconfigKey])
}

func hashOf(t *testing.T, ca []byte) [sha256.Size]byte {
	t.Helper()
	c, err := pki.ParseCertificate(ca)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := ParseHash(Hash(c))
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestDiscover(t *testing.T) {
	token := NewToken()
	p := open(t, time.Now())
	ca := p.authority.CertificatePEM()
	p.sign(t, token, ca)
	right := [][sha256.Size]byte{hashOf(t, ca)}
	got, err := Discover(t.Context(), p.address(), token, right)
	if err != nil || got.Server != "https://192.0.2.1:6443" || string(got.CA) != string(ca) {
		t.Fatalf("got %v, %v", got, err)
	}
	other := open(t, time.Now())
	for _, tt := range []struct {
		name   string
		change func()
		token  Token
		hash   [sha256.Size]byte
		want   string
	}{
		{"another token", func() {}, Token{"zzzzzz", token.Secret}, right[0], "has no token zzzzzz for joining"},
		{"another secret", func() {}, Token{token.ID, "0123456789abcdef"}, right[0], "does not know the secret of token " + token.ID},
		{"another hash", func() {}, token, sha256.Sum256([]byte("x")), "its certificate authority has the hash sha256:"},
		{"another authority", func() { p.sign(t, token, other.authority.CertificatePEM()) }, token, hashOf(t, other.authority.CertificatePEM()), "certificate signed by unknown authority"},
		{"no authority", func() { p.sign(t, token, nil) }, token, right[0], "it has no certificate of an authority"},
		{"nothing", func() { p.status = http.StatusNotFound }, token, right[0], "start it with `sampan up --advertise-address=ADDRESS`"},
		{"no permission", func() { p.status = http.StatusForbidden }, token, right[0], "does not let anyone read where it is"},
	} {
		tt.change()
		if _, err := Discover(t.Context(), p.address(), tt.token, [][sha256.Size]byte{tt.hash}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestDiscoverNamesTheClock(t *testing.T) {
	token := NewToken()
	for _, tt := range []struct {
		from time.Duration
		want string
	}{{time.Hour, "is not valid before"}, {-20 * 365 * 24 * time.Hour, "the clock of this machine says"}} {
		p := open(t, time.Now().Add(tt.from))
		p.sign(t, token, p.authority.CertificatePEM())
		_, err := Discover(t.Context(), p.address(), token, [][sha256.Size]byte{hashOf(t, p.authority.CertificatePEM())})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("from %v: %v, want %q", tt.from, err, tt.want)
		}
	}
	if _, err := Discover(t.Context(), "127.0.0.1:1", token, nil); err == nil || !strings.HasPrefix(err.Error(), "cannot reach the cluster at 127.0.0.1:1: ") {
		t.Errorf("no server: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:6443": "192.0.2.1:6443", "192.0.2.1": "192.0.2.1:6443", "host": "host:6443", "[fd00::1]:7": "[fd00::1]:7", "fd00::1": "[fd00::1]:6443",
		"": "", "https://host:1": "", "host:0": "", "a b": "", "user@host:1": "",
	} {
		if got, err := ParseAddress(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestSettingsAreReadAsWritten(t *testing.T) {
	a, err := pki.Open(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pods, _ := local.ParsePair("10.244.0.0/16,fd00::/56")
	services, _ := local.ParsePair("10.96.0.0/16,fd01::/112")
	s := Settings{Pods: pods, Services: services, Domain: "cluster.local", DNS: "none", CA: a.CertificatePEM()}
	got, err := ParseSettings(s.Data())
	if err != nil || got.Pods != pods || got.Services != services || got.Domain != s.Domain || string(got.CA) != string(s.CA) || got.Join(local.Settings{}).DNSListen != "none" {
		t.Errorf("got %+v, %v", got, err)
	}
	for key := range s.Data() {
		data := s.Data()
		data[key] = "x"
		if _, err := ParseSettings(data); err == nil && (key == podsKey || key == servicesKey || key == caKey) {
			t.Errorf("a bad %s is accepted", key)
		}
	}
}

// signing answers the requests for certificates on a server like the controllers of the cluster, for so long.
func signing(t *testing.T, s *clienttest.Server, a *atomic.Pointer[pki.Authority], life time.Duration, answer func(*certificatesv1.CertificateSigningRequest)) func(context.Context) {
	return func(ctx context.Context) {
		for event, err := range s.Watch(ctx, client.CertificateSigningRequests.GroupVersionResource, "", metav1.ListOptions{}) {
			if err != nil {
				return
			}
			r, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || len(r.Status.Certificate) > 0 || len(r.Status.Conditions) > 0 {
				continue
			}
			r = r.DeepCopy()
			if answer != nil {
				answer(r)
			} else {
				block, _ := pem.Decode(r.Spec.Request)
				asked, err := x509.ParseCertificateRequest(block.Bytes)
				if err != nil {
					t.Error(err)
					return
				}
				now := time.Now()
				der, err := a.Load().Sign(&x509.Certificate{
					Subject:  pkix.Name{CommonName: asked.Subject.CommonName, Organization: asked.Subject.Organization},
					DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses, NotBefore: now, NotAfter: now.Add(life),
				}, asked.PublicKey)
				if err != nil {
					t.Error(err)
					return
				}
				r.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
			}
			s.Set(t, r)
		}
	}
}

// TestCertificatesAreRenewedInTime checks that new certificates come when a fifth of the time is left, and are kept.
func TestCertificatesAreRenewedInTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, err := pki.Open(filepath.Join(dir, "authority"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s := clienttest.New(t)
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		var signer atomic.Pointer[pki.Authority]
		signer.Store(a)
		g.Go(signing(t, s, &signer, 10*time.Hour, nil))
		synctest.Wait()
		node := filepath.Join(dir, "node")
		if _, err := Open(node, "two"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("without files: %v", err)
		}
		c, err := Request(t.Context(), s, node, "two", a.CertificatePEM())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Server(nil); err == nil {
			t.Error("there is a serving certificate before any was requested")
		}
		addresses := []netip.Addr{netip.MustParseAddr("192.0.2.2")}
		g.Go(func(ctx context.Context) { _ = c.Run(ctx, s, addresses, slog.New(slog.DiscardHandler)) })
		synctest.Wait()
		serving, err := c.Server(nil)
		if err != nil || serving.Leaf.VerifyHostname("two") != nil || serving.Leaf.VerifyHostname("192.0.2.2") != nil {
			t.Fatalf("the serving certificate is %v, %v", serving, err)
		}
		end := c.Expires()
		time.Sleep(8*time.Hour - time.Minute)
		synctest.Wait()
		if now, _ := c.Server(nil); !c.Expires().Equal(end) || now != serving {
			t.Error("certificates are renewed too early")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if now, _ := c.Server(nil); !c.Expires().After(end) || now == serving {
			t.Error("certificates are not renewed when a fifth of their time is left")
		}
		other, err := pki.Open(filepath.Join(dir, "other"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		end = c.Expires()
		signer.Store(other)
		if err := c.Trust(append(other.CertificatePEM(), a.CertificatePEM()...)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !c.Expires().After(end) || c.client.Load().Leaf.CheckSignatureFrom(c.ca.Load().signer) != nil {
			t.Error("the certificate of the former authority is not replaced")
		}
		again, err := Open(node, "two")
		if err != nil || !again.Expires().Equal(c.Expires()) {
			t.Errorf("the files have another certificate: %v", err)
		}
		if _, err := Open(node, "three"); err == nil || !strings.Contains(err.Error(), "is the certificate of system:node:two") {
			t.Errorf("as another node: %v", err)
		}
	})
}

func TestRefusalIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t)
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(signing(t, s, nil, 0, func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "NodeExists", Message: "it exists",
			}}
		}))
		synctest.Wait()
		_, err := Request(t.Context(), s, t.TempDir(), "two", nil)
		if denied := new(DeniedError); !errors.As(err, &denied) || denied.Reason != "NodeExists" {
			t.Errorf("got %v", err)
		}
	})
}

func TestNamesHaveOneMachine(t *testing.T) {
	marked := func(mark string, status corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two", UID: "two"}}
		if mark != "" {
			n.Annotations = map[string]string{names.Machine: mark}
		}
		if status != "" {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		}
		return n
	}
	networks := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}
	for _, tt := range []struct {
		name     string
		node     *corev1.Node
		networks []netip.Prefix
		taken    string // the status in the error
	}{
		{"new", nil, nil, ""},
		{"deleted", nil, networks, ""},
		{"own", marked("me", corev1.ConditionTrue), networks, ""},
		{"own that has no status yet", marked("me", ""), nil, ""},
		{"another's, alive", marked("you", corev1.ConditionTrue), nil, "Ready"},
		{"another's now, alive", marked("you", corev1.ConditionTrue), networks, "Ready"},
		{"another's, off", marked("you", corev1.ConditionUnknown), nil, "NotReady"},
		{"another's now, off", marked("you", corev1.ConditionUnknown), networks, "NotReady"},
		{"another's that was created a moment ago", marked("you", ""), nil, "Unknown"},
		{"unmarked, alive", marked("", corev1.ConditionTrue), nil, "Ready"},
		{"own that lost its mark", marked("", corev1.ConditionTrue), networks, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var objects []client.Object
			if tt.node != nil {
				objects = append(objects, tt.node)
			}
			s := clienttest.New(t, objects...)
			node := clienttest.Find(s, client.Nodes, "", "two")
			initial := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}}}
			own, err := Own(t.Context(), s, node, initial, "me", tt.networks)
			status := ""
			if taken := new(TakenError); errors.As(err, &taken) {
				status = taken.Status
			} else if err != nil {
				t.Fatal(err)
			}
			if status != tt.taken || own == (tt.taken != "") {
				t.Errorf("owned %t, refused for a Node that is %q, want %q", own, status, tt.taken)
			}
			now := clienttest.Find(s, client.Nodes, "", "two")
			if (now.Annotations[names.Machine] == "me") != own {
				t.Errorf("the marks are %v", now.Annotations)
			}
			if tt.node == nil && (len(now.Spec.PodCIDRs) != len(tt.networks) || len(now.Spec.Taints) != 1) {
				t.Errorf("the Node has the networks %v and the taints %v", now.Spec.PodCIDRs, now.Spec.Taints)
			}
		})
	}
}

// TestOneOfTwoMachinesGetsNewName has two machines that both saw no Node create it.
func TestOneOfTwoMachinesGetsNewName(t *testing.T) {
	s := clienttest.New(t)
	initial := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two"}}
	first, err := Own(t.Context(), s, nil, initial, "me", nil)
	if err != nil || !first {
		t.Fatal(first, err)
	}
	if second, err := Own(t.Context(), s, nil, initial, "you", nil); err != nil || second {
		t.Errorf("the second machine owns the name: %t, %v", second, err)
	}
	_, err = Own(t.Context(), s, clienttest.Find(s, client.Nodes, "", "two"), initial, "you", nil)
	if !errors.As(err, new(*TakenError)) {
		t.Errorf("the second machine sees the Node of the first one: %v", err)
	}
}

// TestRequestsWaitForTheName checks that nothing is sent before the channel is closed.
func TestRequestsWaitForTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		next := roundTripper(func(*http.Request) (*http.Response, error) { sent++; return &http.Response{}, nil })
		until := make(chan struct{})
		w := waiting{next, until}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		if _, err := w.RoundTrip(r); !errors.Is(err, context.DeadlineExceeded) || sent != 0 {
			t.Errorf("%d requests were sent; %v", sent, err)
		}
		close(until)
		if _, err := w.RoundTrip(r.WithContext(t.Context())); err != nil || sent != 1 {
			t.Errorf("%d requests were sent; %v", sent, err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func base64Of(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// signed returns a signature by the rules of RFC 7515.
func signed(token Token, content string) string {
	first := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"` + token.ID + `"}`))
	mac := hmac.New(sha256.New, []byte(token.Secret))
	_, _ = mac.Write([]byte(first + "." + base64.RawURLEncoding.EncodeToString([]byte(content))))
	return first + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestOpenAfterAPowerCut opens certificates of which a file is empty, as file systems leave files that were not synced.
func TestOpenAfterAPowerCut(t *testing.T) {
	dir := t.TempDir()
	a, err := pki.Open(filepath.Join(dir, "authority"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{caFile, clientFile, serverFile} {
		c := newCertificates(filepath.Join(dir, file), "two")
		if err := os.Mkdir(c.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		pair, err := a.Issue(pki.Subject{CommonName: "system:node:two"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.keep(clientFile, pair, &c.client), c.keep(serverFile, pair, &c.serving)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.dir, caFile), a.CertificatePEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(c.dir, file)
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		got, err := Open(c.dir, "two")
		switch {
		case file == serverFile && (err != nil || got.serving.Load() != nil):
			t.Errorf("%s is empty: %v", file, err)
		case file != serverFile && (err == nil || !strings.Contains(err.Error(), path)):
			t.Errorf("%s is empty: %v, want an error that names it", file, err)
		}
	}
}
