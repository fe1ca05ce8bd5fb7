package oidc

import (
	"net/http"
	"testing"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/internal/hangtest"
)

// FuzzToken checks that no text without a signature of the issuer is a user.
func FuzzToken(f *testing.F) {
	v := verifierOf(f, parse(f, simple), usual())
	known := good(f, map[string]any{"groups": []string{"a"}})
	f.Add(known)
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIn0.")
	a := auth.New(auth.Options{Issuers: v})
	f.Fuzz(func(t *testing.T, text string) {
		defer hangtest.Guard(t)()
		if u, err := v.Verify(t.Context(), issuerURL, text); err == nil && text != known {
			t.Errorf("%q is %v", text, u)
		}
		r, err := http.NewRequest(http.MethodGet, "https://x/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+text)
		if u, err := a.Authenticate(r); err == nil && text != known {
			t.Errorf("%q is %v", text, u)
		}
	})
}

// FuzzKey checks that what an issuer publishes is a key or an error.
func FuzzKey(f *testing.F) {
	f.Add([]byte(`{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`))
	f.Add([]byte(`{"kty":"RSA","n":"AQAB","e":"AQAB"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer hangtest.Guard(t)()
		if k, err := parseKey(data); err == nil && k.key == nil {
			t.Errorf("%q is no key", data)
		}
	})
}

// FuzzConfig checks that a configuration is compiled or refused.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(simple))
	f.Add([]byte(expressions))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer hangtest.Guard(t)()
		c, err := ParseConfig("auth.yaml", data)
		if err != nil {
			return
		}
		if issuers, errs := c.compile(nil); len(errs) == 0 && len(issuers) != len(c.JWT) {
			t.Errorf("%d issuers of %d", len(issuers), len(c.JWT))
		}
	})
}
