package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/oidc"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
)

// authorities returns a cluster with its two authorities.
func authorities(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	c.Profile.DataDir = t.TempDir()
	var err error
	if c.authority, err = pki.Open(c.pkiDir(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if c.frontProxy, err = pki.OpenFrontProxy(c.pkiDir(), time.Now()); err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRequestHeader(t *testing.T) {
	c := authorities(t)
	other, err := pki.Open(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign := write(t, other.CertificatePEM())
	for _, tt := range []struct {
		name  string
		asked local.RequestHeader
		names []string
		users string
		certs int
	}{
		{"nothing asked for", local.RequestHeader{}, []string{"front-proxy-client"}, `["X-Remote-User"]`, 1},
		{"another proxy", local.RequestHeader{ClientCAFile: foreign, AllowedNames: []string{"p"}, UsernameHeaders: []string{"X-U", "X-V"}}, []string{"p", "front-proxy-client"}, `["X-U","X-V"]`, 2},
		{"any name", local.RequestHeader{ClientCAFile: foreign}, nil, `["X-Remote-User"]`, 2},
	} {
		k := &credentials{proxies: &proxyCAs{own: c.frontProxy}}
		if err := k.readRequestHeader(tt.asked, c.authority); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(k.headers.AllowedNames, tt.names) {
			t.Errorf("%s: names %q", tt.name, k.headers.AllowedNames)
		}
		data := c.published(k)
		if data["requestheader-username-headers"] != tt.users || strings.Count(data["requestheader-client-ca-file"], "BEGIN") != tt.certs || data["client-ca-file"] != string(c.authority.CertificatePEM()) {
			t.Errorf("%s: published %q", tt.name, data)
		}
		for key, value := range data {
			var list []string
			if !strings.HasSuffix(key, "-file") && json.Unmarshal([]byte(value), &list) != nil {
				t.Errorf("%s: %s is %q", tt.name, key, value)
			}
		}
		pool := k.proxies.Pool()
		if pool != k.proxies.Pool() {
			t.Errorf("%s: another pool without a change", tt.name)
		}
		if err := c.frontProxy.Prepare(time.Now()); err == nil && k.proxies.Pool() == pool {
			t.Errorf("%s: the same pool after a change", tt.name)
		}
		if err := c.frontProxy.Activate(time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := c.frontProxy.DropFormer(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	own := write(t, append(pem.EncodeToMemory(&pem.Block{Type: "X"}), c.authority.CertificatePEM()...))
	for want, asked := range map[string]local.RequestHeader{
		"overlapping certificates": {ClientCAFile: own},
		"contains no certificate":  {ClientCAFile: write(t, []byte("x"))},
		"no such file":             {ClientCAFile: "/does/not/exist"},
	} {
		k := &credentials{proxies: &proxyCAs{own: c.frontProxy}}
		if err := k.readRequestHeader(asked, c.authority); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--requestheader-client-ca-file") {
			t.Errorf("%+v: %v, want %q", asked, err, want)
		}
	}
}

// noObjects is an empty store.
type noObjects struct{}

func (noObjects) Get(_ context.Context, gvr schema.GroupVersionResource, _, name string) (catalog.Object, error) {
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

// TestOwnFrontProxy checks that the certificate of the cluster's own proxy is accepted, before and after its authority was
// replaced, and that one of another name or authority is not.
func TestOwnFrontProxy(t *testing.T) {
	c := authorities(t)
	var err error
	if c.tokenKeys, err = pki.OpenTokenKeys(c.pkiDir()); err != nil {
		t.Fatal(err)
	}
	k, err := c.newCredentials(noObjects{})
	if err != nil {
		t.Fatal(err)
	}
	a := auth.New(auth.Options{ClientCAs: c.authority.Pool, FrontProxy: k.proxy})
	user := func(from *pki.Authority, name string) string {
		t.Helper()
		cert, err := from.Issue(pki.Subject{CommonName: name}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}}
		r.Header.Set("X-Remote-User", "jane")
		u, err := a.Authenticate(r)
		if err != nil {
			return "refused"
		}
		return u.Name
	}
	check := func() {
		t.Helper()
		if got := user(c.frontProxy, frontProxyClient); got != "jane" {
			t.Errorf("the own proxy: %s", got)
		}
		if got := user(c.frontProxy, "other"); got != "refused" {
			t.Errorf("another name: %s", got)
		}
		if got := user(c.authority, frontProxyClient); got != frontProxyClient {
			t.Errorf("a user of that name: %s", got)
		}
	}
	check()
	if err := c.frontProxy.Prepare(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.frontProxy.Activate(time.Now()); err != nil {
		t.Fatal(err)
	}
	check()
}

func TestAnonymousSettings(t *testing.T) {
	no := false
	for name, tt := range map[string]struct {
		file  *oidc.Anonymous
		asked local.Authentication
		want  string // paths, or "no"
	}{
		"nothing":      {nil, local.Authentication{}, ""},
		"the flag":     {nil, local.Authentication{Anonymous: &no}, "no"},
		"the file":     {&oidc.Anonymous{}, local.Authentication{}, "no"},
		"paths":        {&oidc.Anonymous{Enabled: true, Conditions: []oidc.Condition{{Path: "/livez"}}}, local.Authentication{}, "/livez"},
		"all requests": {&oidc.Anonymous{Enabled: true}, local.Authentication{}, ""},
	} {
		v, err := oidc.New(oidc.Options{Config: &oidc.Config{Anonymous: tt.file}})
		if err != nil {
			t.Fatal(err)
		}
		got := (&credentials{issuers: v}).anonymous(tt.asked)
		if want := (auth.AnonymousAccess{Disabled: tt.want == "no"}); got.Disabled != want.Disabled || tt.want != "no" && strings.Join(got.Paths, " ") != tt.want {
			t.Errorf("%s: %+v, want %q", name, got, tt.want)
		}
	}
}

// TestKubeconfigIsRenewed lets a year pass, and replaces the authority.
func TestKubeconfigIsRenewed(t *testing.T) {
	c, now := authorities(t), time.Now()
	c.Profile.Name = "test"
	due, err := c.renewKubeconfig("https://127.0.0.1:6443", now)
	if err != nil || !due.After(now.AddDate(0, 6, 0)) {
		t.Fatal(due, err)
	}
	first, _ := c.Profile.SavedCredentials()
	if _, err := c.renewKubeconfig("https://127.0.0.1:6443", due.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if same, _ := c.Profile.SavedCredentials(); string(same.Cert) != string(first.Cert) {
		t.Error("renewed before it is due")
	}
	if _, err := c.renewKubeconfig("https://127.0.0.1:6443", due); err != nil {
		t.Fatal(err)
	}
	second, _ := c.Profile.SavedCredentials()
	if string(second.Cert) == string(first.Cert) {
		t.Error("not renewed when it is due")
	}
	if err := c.authority.Prepare(now); err != nil {
		t.Fatal(err)
	}
	if _, err := c.renewKubeconfig("https://127.0.0.1:6443", due); err != nil {
		t.Fatal(err)
	}
	if third, _ := c.Profile.SavedCredentials(); strings.Count(string(third.CA), "BEGIN") != 2 {
		t.Error("the kubeconfig does not have the prepared authority")
	}
	// Activate writes two files. The kubeconfig that is written between them has a certificate of the former authority.
	key, err := os.ReadFile(filepath.Join(c.pkiDir(), "ca.key"))
	if err == nil {
		err = c.authority.Activate(now)
	}
	if err != nil {
		t.Fatal(err)
	}
	former := authorities(t)
	if err := os.WriteFile(filepath.Join(former.pkiDir(), "ca.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(former.pkiDir(), "ca.crt"), c.authority.CertificatePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := former.authority.Reload(now); err != nil {
		t.Fatal(err)
	}
	former.Profile = c.Profile
	if _, err := former.renewKubeconfig("https://127.0.0.1:6443", now); err != nil {
		t.Fatal(err)
	}
	if between, _ := c.Profile.SavedCredentials(); c.authority.Signed(between.Cert) {
		t.Fatal("the test has not made the state between the two files")
	}
	if _, err := c.renewKubeconfig("https://127.0.0.1:6443", now); err != nil {
		t.Fatal(err)
	}
	if activated, _ := c.Profile.SavedCredentials(); !c.authority.Signed(activated.Cert) {
		t.Error("the kubeconfig does not have a certificate of the authority that signs")
	}
}
