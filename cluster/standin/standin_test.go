package standin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDataDirIsThatOfEtcd(t *testing.T) {
	dir := t.TempDir()
	etcd := httptest.NewServer(etcdHandler(dir))
	defer etcd.Close()
	if got, err := DataDir(t.Context(), etcd.URL); err != nil || got != dir {
		t.Errorf("got %q and %v, want %s", got, err, dir)
	}
	health := func() int {
		resp, err := http.Get(etcd.URL + "/health")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if code := health(); code != http.StatusOK {
		t.Errorf("health is %d, want 200", code)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if code := health(); code != http.StatusServiceUnavailable {
		t.Errorf("health without the directory is %d, want 503", code)
	}
}

func TestDataDirRefusesOtherServers(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"an answer of another program": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"cluster_id": 1}`)
		},
		"a relative path": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"directory": "x"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			other := httptest.NewServer(handler)
			defer other.Close()
			if dir, err := DataDir(t.Context(), other.URL); err == nil || !strings.Contains(err.Error(), "Sampan does not store in etcd") {
				t.Errorf("got %q and %v, want an error about etcd", dir, err)
			}
		})
	}
}

// save writes a key as PEM and returns the file.
func save(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestServerPrintsItsVersion(t *testing.T) {
	var out strings.Builder
	if _, err := ParseServer([]string{"--version"}, "v1.2.3", &out); !IsHelp(err) || out.String() != "Kubernetes v1.2.3\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestTokenKeys(t *testing.T) {
	signing, former := newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	keys, err := tokenKeys(save(t, signing), []string{save(t, signing), save(t, former)})
	if err != nil {
		t.Fatal(err)
	}
	if !keys.Key.Equal(signing) || len(keys.Former) != 1 || !keys.Former[0].Equal(former.Public()) {
		t.Errorf("got %d further keys, want the one that does not sign", len(keys.Former))
	}
}

func TestTokenKeysRefuseOtherKinds(t *testing.T) {
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := save(t, newKey(t, elliptic.P256()))
	for _, test := range []struct {
		signing string
		others  []string
		flag    string
	}{
		{save(t, other), nil, "--service-account-signing-key-file"},
		{save(t, newKey(t, elliptic.P384())), nil, "--service-account-signing-key-file"},
		{good, []string{save(t, other)}, "--service-account-key-file"},
		{good, []string{save(t, newKey(t, elliptic.P384()))}, "--service-account-key-file"},
		{filepath.Join(t.TempDir(), "none"), nil, "--service-account-signing-key-file"},
	} {
		if _, err := tokenKeys(test.signing, test.others); err == nil || !strings.HasPrefix(err.Error(), test.flag+": ") {
			t.Errorf("got %v, want an error about %s", err, test.flag)
		}
	}
}
