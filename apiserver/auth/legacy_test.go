package auth_test

import (
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

func TestLegacyTokens(t *testing.T) {
	o := boundObjects()
	var used []string
	key := newKey(t)
	tokens, err := auth.NewTokens(auth.TokensOptions{Key: key, Objects: o, Used: func(s *corev1.Secret) { used = append(used, s.Name) }})
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.SignLegacy("ship", "cook", "sa-1", "recipe")
	if err != nil {
		t.Fatal(err)
	}
	secret := func() *corev1.Secret { return o["secrets/ship/recipe"].(*corev1.Secret) }
	expect := func(name, text string) {
		t.Helper()
		u, err := tokens.Verify(t.Context(), token)
		if text == "" && (err != nil || u.Name != "system:serviceaccount:ship:cook" || u.UID != "sa-1") || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%s: %v, %v, want %q", name, u, err, text)
		}
	}
	expect("without the token in the secret", "Token does not match server's copy")
	secret().Data = map[string][]byte{"token": []byte(token)}
	expect("with it", "")
	if len(used) != 1 || used[0] != "recipe" {
		t.Errorf("used %q", used)
	}
	today, _ := auth.MarkUsed(secret(), time.Now())
	secret().Labels = map[string]string{auth.LegacyLastUsedLabel: today}
	expect("again", "")
	if len(used) > 1 {
		t.Errorf("recorded twice on a day: %q", used)
	}
	if r, err := auth.New(auth.Options{Tokens: tokens}).ReviewToken(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}); err != nil || !r.Status.Authenticated || r.Status.Audiences[0] != auth.DefaultIssuer {
		t.Errorf("the review is %+v, %v", r, err)
	}
	secret().Labels[auth.LegacyInvalidSinceLabel] = "2026-01-01"
	expect("marked invalid", "has been marked invalid. Use tokens from the TokenRequest API")
	delete(secret().Labels, auth.LegacyInvalidSinceLabel)
	o["serviceaccounts/ship/cook"].SetUID("sa-2")
	expect("of another account", "ServiceAccount UID (sa-2) does not match claim (sa-1)")
	o["serviceaccounts/ship/cook"].SetUID("sa-1")
	kept := o["secrets/ship/recipe"]
	delete(o, "secrets/ship/recipe")
	expect("without the secret", "Token has been invalidated")
	o["secrets/ship/recipe"] = kept

	next := newKey(t)
	if err := tokens.SetKeys(next, []*ecdsa.PublicKey{&key.PublicKey}); err != nil {
		t.Fatal(err)
	}
	expect("of a former key", "")
	if err := tokens.SetKeys(next, nil); err != nil {
		t.Fatal(err)
	}
	expect("of a key that is not accepted any more", "signed with a key that this cluster does not have")
}

// TestKeysRotate checks that a token of a former key is good for as long as that key is accepted, though it is cached.
func TestKeysRotate(t *testing.T) {
	old, next := newKey(t), newKey(t)
	tokens, err := auth.NewTokens(auth.TokensOptions{Key: old, Objects: boundObjects()})
	if err != nil {
		t.Fatal(err)
	}
	first := issue(t, tokens, ask(0, nil))
	good := func(token string) bool { _, err := tokens.Verify(t.Context(), token); return err == nil }
	if err := tokens.SetKeys(next, []*ecdsa.PublicKey{&old.PublicKey}); err != nil {
		t.Fatal(err)
	}
	second := issue(t, tokens, ask(0, nil))
	if !good(first) || !good(second) {
		t.Error("a token of the former or of the new key is refused")
	}
	if header(t, first)["kid"] == header(t, second)["kid"] {
		t.Error("the new token is signed with the former key")
	}
	if err := tokens.SetKeys(next, nil); err != nil {
		t.Fatal(err)
	}
	if good(first) || !good(second) {
		t.Error("want the token of the former key to be refused, and the other not")
	}
}

func header(t *testing.T, token string) (h map[string]any) {
	t.Helper()
	first, _, _ := strings.Cut(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(first)
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestIssuerMetadata(t *testing.T) {
	key, former := newKey(t), newKey(t)
	tokens, err := auth.NewTokens(auth.TokensOptions{Key: key, Former: []*ecdsa.PublicKey{&former.PublicKey}, Objects: boundObjects()})
	if err != nil {
		t.Fatal(err)
	}
	m := auth.NewMetadata(tokens, "https://10.0.0.1:6443")
	get := func(path, contentType string, into any) {
		t.Helper()
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != 200 || w.Header().Get("Content-Type") != contentType || w.Header().Get("Cache-Control") != "public, max-age=3600" {
			t.Fatalf("%s: %d %v", path, w.Code, w.Header())
		}
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatal(err)
		}
	}
	var doc map[string]any
	get("/.well-known/openid-configuration", "application/json", &doc)
	if doc["issuer"] != auth.DefaultIssuer || doc["jwks_uri"] != "https://10.0.0.1:6443/openid/v1/jwks" {
		t.Errorf("the document is %v", doc)
	}
	var set struct {
		Keys []struct{ Use, Kty, Kid, Crv, Alg, X, Y string }
	}
	get("/openid/v1/jwks", "application/jwk-set+json", &set)
	if len(set.Keys) != 2 {
		t.Fatalf("%d keys", len(set.Keys))
	}
	number := func(s string) *big.Int {
		data, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil || len(data) != 32 {
			t.Fatal(s, err)
		}
		return new(big.Int).SetBytes(data)
	}
	for i, want := range []*ecdsa.PublicKey{&key.PublicKey, &former.PublicKey} {
		k := set.Keys[i]
		if number(k.X).Cmp(want.X) != 0 || number(k.Y).Cmp(want.Y) != 0 || k.Alg != "ES256" || k.Crv != "P-256" || k.Kty != "EC" || k.Use != "sig" { //nolint:staticcheck // compared only
			t.Errorf("key %d is %+v", i, k)
		}
	}
	if set.Keys[0].Kid != header(t, issue(t, tokens, ask(0, nil)))["kid"] {
		t.Error("the id of the first key is not that in tokens")
	}
	w := httptest.NewRecorder()
	if m.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/openid/v1/jwks", nil)); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
