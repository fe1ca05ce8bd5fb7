package oidc

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/internal/run"
)

const issuerURL = "https://issuer.example"

var rsaKey = func() *rsa.PrivateKey { // takes long to make
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
}()

// A provider is an issuer that answers without a network.
type provider struct {
	keys     []map[string]string
	document string                                      // empty means a good one
	answer   func(*http.Request) (*http.Response, error) // instead of all that
	asked    atomic.Int32
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked.Add(1)
	if p.answer != nil {
		return p.answer(r)
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		doc := p.document
		if doc == "" {
			doc = fmt.Sprintf(`{"issuer":%q,"jwks_uri":"%s/keys"}`, issuerURL, issuerURL)
		}
		return answer(200, doc), nil
	case "/keys":
		data, err := json.Marshal(map[string]any{"keys": p.keys})
		return answer(200, string(data)), err
	}
	return answer(404, ""), nil
}

func answer(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Status: fmt.Sprint(code, " ", http.StatusText(code)), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// jwk returns the JSON Web Key of a key.
func jwk(id string, key crypto.PublicKey) map[string]string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return map[string]string{"kty": "RSA", "kid": id, "use": "sig", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err)
		}
		half := len(point) / 2
		return map[string]string{"kty": "EC", "kid": id, "crv": k.Curve.Params().Name, "x": b64(point[1 : 1+half]), "y": b64(point[1+half:])}
	}
	panic(key)
}

// simple is a configuration with a claim for the name.
const simple = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: "https://issuer.example", audiences: [cluster]}
  claimMappings: {username: {claim: sub, prefix: "p:"}, groups: {claim: groups, prefix: "g:"}}
`

func parse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := ParseConfig("auth.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verifierOf returns a verifier whose issuer is the provider.
func verifierOf(t testing.TB, c *Config, p *provider) *Verifier {
	t.Helper()
	v, err := New(Options{Config: c, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range *v.issuers.Load() {
		is.keys.client.Transport = p
	}
	return v
}

// token returns a signed token with the usual claims and others.
func token(t testing.TB, method jwt.SigningMethod, key any, id string, others map[string]any) string {
	t.Helper()
	c := jwt.MapClaims{"iss": issuerURL, "aud": "cluster", "sub": "jane", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range others {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	tok := jwt.NewWithClaims(method, c)
	tok.Header["kid"] = id
	text, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func good(t testing.TB, others map[string]any) string {
	return token(t, jwt.SigningMethodRS256, rsaKey, "a", others)
}

func usual() *provider { return &provider{keys: []map[string]string{jwk("a", &rsaKey.PublicKey)}} }

func TestToken(t *testing.T) {
	v := verifierOf(t, parse(t, simple), usual())
	u, err := v.Verify(t.Context(), issuerURL, good(t, map[string]any{"groups": []string{"a", "b"}, "jti": "7"}))
	want := &auth.User{Name: "p:jane", Groups: []string{"g:a", "g:b", "system:authenticated"}, Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=7"}}}
	if diff := cmp.Diff(want, u); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if u, err := v.Verify(t.Context(), issuerURL, good(t, map[string]any{"groups": "a"})); err != nil || u.Groups[0] != "g:a" {
		t.Errorf("one group as a text: %v, %v", u, err)
	}
	if u, err := v.Verify(t.Context(), "https://other.example", "x"); u != nil || err != nil {
		t.Errorf("of another issuer: %v, %v", u, err)
	}
}

// TestHostileTokens checks that each forged or unsuitable token is refused.
func TestHostileTokens(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := usual()
	p.keys = append(p.keys, jwk("ec", &ec.PublicKey), map[string]string{"kty": "oct", "kid": "secret", "k": b64([]byte("secret"))}, jwk("enc", &other.PublicKey))
	p.keys[3]["use"] = "enc"
	v := verifierOf(t, parse(t, simple), p)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey)})
	parts := strings.Split(good(t, nil), ".")
	payload := func(claims string) string { return b64([]byte(claims)) }
	soon := time.Now().Add(time.Hour).Unix()
	for name, text := range map[string]string{
		"alg none":                   token(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "a", nil),
		"alg NONE":                   b64([]byte(`{"alg":"NONE","kid":"a"}`)) + "." + parts[1] + ".",
		"alg empty":                  b64([]byte(`{"alg":"","kid":"a"}`)) + "." + parts[1] + "." + parts[2],
		"no signature":               parts[0] + "." + parts[1] + ".",
		"HMAC with the public key":   token(t, jwt.SigningMethodHS256, public, "a", nil),
		"HMAC with a published key":  token(t, jwt.SigningMethodHS256, []byte("secret"), "secret", nil),
		"EC with the id of an RSA":   token(t, jwt.SigningMethodES384, ec, "a", nil),
		"another key":                token(t, jwt.SigningMethodRS256, other, "a", nil),
		"a key for encryption":       token(t, jwt.SigningMethodRS256, other, "enc", nil),
		"an unknown key":             token(t, jwt.SigningMethodRS256, other, "b", nil),
		"other claims":               parts[0] + "." + payload(fmt.Sprintf(`{"iss":%q,"aud":"cluster","sub":"root","exp":%d}`, issuerURL, soon)) + "." + parts[2],
		"another audience":           good(t, map[string]any{"aud": "other"}),
		"no audience":                good(t, map[string]any{"aud": nil}),
		"an audience that is a map":  good(t, map[string]any{"aud": map[string]any{"cluster": true}}),
		"expired":                    good(t, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}),
		"no expiry":                  good(t, map[string]any{"exp": nil}),
		"an expiry that is a text":   good(t, map[string]any{"exp": "never"}),
		"not yet valid":              good(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"another issuer inside":      good(t, map[string]any{"iss": "https://other.example"}),
		"an issuer in other letters": good(t, map[string]any{"iss": nil, "ISS": issuerURL}),
		"a name that is a number":    good(t, map[string]any{"sub": 7}),
		"no name":                    good(t, map[string]any{"sub": nil}),
		"groups that are numbers":    good(t, map[string]any{"groups": []int{1}}),
		"no token":                   "a.b.c",
		"four parts":                 good(t, nil) + ".x",
		"null":                       parts[0] + "." + payload("null") + "." + parts[2],
	} {
		if u, err := v.Verify(t.Context(), issuerURL, text); err == nil || u != nil {
			t.Errorf("%s: is %v", name, u)
		}
	}
	if _, err := v.Verify(t.Context(), issuerURL, token(t, jwt.SigningMethodES384, ec, "ec", nil)); err != nil {
		t.Errorf("an EC key: %v", err)
	}
	critical := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"iss": issuerURL, "aud": "cluster", "sub": "jane", "exp": soon})
	critical.Header["kid"], critical.Header["crit"] = "a", []string{"x"}
	text, err := critical.SignedString(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), issuerURL, text); err == nil {
		t.Error("a critical header is ignored")
	}
}

// TestHugeClaims checks that a token with many groups and deep claims is bounded work.
func TestHugeClaims(t *testing.T) {
	c := parse(t, simple)
	c.JWT[0].ClaimMappings.Groups = PrefixedMapping{Expression: `claims.list.map(a, claims.list.map(b, a + b)).map(l, l[0])`}
	v := verifierOf(t, c, usual())
	list := slices.Repeat([]string{"0123456789"}, 3000)
	_, err := v.Verify(t.Context(), issuerURL, good(t, map[string]any{"list": list}))
	if err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
		t.Errorf("an expensive expression: %v", err)
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	c = parse(t, simple)
	c.JWT[0].ClaimMappings.UID = Mapping{Expression: `string(size(claims.deep)) + "__"`}
	v = verifierOf(t, c, usual())
	if u, err := v.Verify(t.Context(), issuerURL, good(t, map[string]any{"deep": json.RawMessage(deep)})); err != nil || u.UID != "1__" {
		t.Errorf("deep claims: %v, %v", u, err)
	}
	if _, err := v.Verify(t.Context(), issuerURL, good(t, map[string]any{"deep": []any{}, "groups": slices.Repeat([]string{strings.Repeat("g", 60)}, 500)})); err != nil {
		t.Errorf("500 groups: %v", err)
	}
	a := auth.New(auth.Options{Issuers: v})
	r := httptest.NewRequest(http.MethodGet, "/api", nil)
	r.Header.Set("Authorization", "Bearer "+good(t, map[string]any{"x": strings.Repeat("x", 200<<10)}))
	if _, err := a.Authenticate(r); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a huge token: %v", err)
	}
}

const expressions = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://issuer.example
    audiences: [cluster, other]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - {expression: "claims.exp - claims.nbf <= 86400", message: total token lifetime must not exceed 24 hours}
  claimMappings:
    username: {expression: 'claims.email_verified ? claims.email : claims.sub'}
    groups: {expression: 'claims.roles.split(",") + [claims.?team.orValue("")]'}
    uid: {claim: uid}
    extra:
    - {key: example.com/tenant, valueExpression: claims.example__dot__com__slash__tenant}
    - {key: example.com/none, valueExpression: 'claims.?none.orValue("")'}
    - {key: example.com/part, valueExpression: 'claims.email.find("[a-z]+")'}
  userValidationRules:
  - {expression: "!user.username.startsWith('system:')", message: username cannot used reserved system prefix}
  - {expression: "user.groups.all(g, !g.startsWith('system:'))", message: no system groups}
  - {expression: "size(user.extra) > 0 && user.extra['example.com/tenant'][0] != 'x'"}
`

func TestExpressions(t *testing.T) {
	v := verifierOf(t, parse(t, expressions), usual())
	usual := func(others ...any) string {
		c := map[string]any{
			"hd": "example.com", "nbf": time.Now().Unix(), "email": "jane@example.com", "email_verified": true, "roles": "a,b", "uid": "7",
			"example.com/tenant": "acme", "aud": []string{"x", "other"},
		}
		for i := 0; i < len(others); i += 2 {
			c[others[i].(string)] = others[i+1]
		}
		return good(t, c)
	}
	u, err := v.Verify(t.Context(), issuerURL, usual())
	want := &auth.User{Name: "jane@example.com", UID: "7", Groups: []string{"a", "b", "system:authenticated"}, Extra: map[string][]string{"example.com/tenant": {"acme"}, "example.com/part": {"jane"}}}
	if diff := cmp.Diff(want, u); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for name, tt := range map[string]struct{ token, text string }{
		"another claim":       {usual("hd", "other.com"), "oidc: required claim hd value does not match. Got = other.com, want = example.com"},
		"no claim":            {usual("hd", nil), "oidc: required claim hd not present in ID token"},
		"a long life":         {usual("exp", time.Now().Add(48*time.Hour).Unix()), "failed: total token lifetime must not exceed 24 hours"},
		"a system user":       {usual("email", "system:admin"), "failed: username cannot used reserved system prefix"},
		"a system group":      {usual("roles", "system:masters"), "failed: no system groups"},
		"an empty name":       {usual("email", ""), "empty username via CEL expression is not allowed"},
		"a name of numbers":   {usual("email", 7), "username claim expression must return a string"},
		"a missing claim":     {usual("roles", nil), "no such key: roles"},
		"a tenant of numbers": {usual("example.com/tenant", 7), "expression must return a string or a list of strings"},
		"a refused tenant":    {usual("example.com/tenant", "x"), "user info validation rule"},
	} {
		if u, err := v.Verify(t.Context(), issuerURL, tt.token); err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, %v, want %q", name, u, err, tt.text)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for change, want := range map[string]string{
		"url: https://issuer.example>url: http://issuer.example":                                             `jwt[0].issuer.url: Invalid value: "http://issuer.example": URL scheme must be https`,
		"url: https://issuer.example>url: https://own.example":                                               "URL must not overlap with disallowed issuers",
		"url: https://issuer.example>url: https://a:b@issuer.example":                                        "URL must not contain a username or password",
		"url: https://issuer.example>url: ''":                                                                "jwt[0].issuer.url: Required value",
		"audiences: [cluster, other]>audiences: []":                                                          "jwt[0].issuer.audiences: Required value",
		"audiences: [cluster, other]>audiences: [a, a]":                                                      `jwt[0].issuer.audiences[1]: Duplicate value: "a"`,
		"audienceMatchPolicy: MatchAny>audienceMatchPolicy: All":                                             `jwt[0].issuer.audienceMatchPolicy: Invalid value: "All"`,
		"audienceMatchPolicy: MatchAny>certificateAuthority: x":                                              "jwt[0].issuer.certificateAuthority: Invalid value",
		"audienceMatchPolicy: MatchAny>egressSelectorType: cluster":                                          "jwt[0].issuer.egressSelectorType: Invalid value",
		"audienceMatchPolicy: MatchAny>discoveryURL: https://issuer.example/":                                "discoveryURL must be different from URL",
		"claim: hd, requiredValue: example.com>claim: hd, expression: 'true'":                                "jwt[0].claimValidationRules[0]: Invalid value: \"hd\": claim and expression can't both be set",
		"claims.exp - claims.nbf <= 86400>claims.exp - claims.nbf":                                           "jwt[0].claimValidationRules[1].expression: Invalid value: \"claims.exp - claims.nbf\": must evaluate to bool",
		"claims.exp - claims.nbf <= 86400>claims.(":                                                          "compilation failed: ERROR",
		"claims.email_verified ? claims.email : claims.sub>claims.email":                                     "claims.email_verified must be used in claimMappings.username.expression",
		"uid: {claim: uid}>uid: {claim: uid, expression: claims.uid}":                                        "jwt[0].claimMappings.uid: Invalid value",
		"key: example.com/tenant>key: tenant":                                                                "jwt[0].claimMappings.extra[0].key: Invalid value",
		"key: example.com/tenant>key: example.com/Tenant":                                                    "must be lowercase",
		"key: example.com/tenant>key: a.k8s.io/tenant":                                                       "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
		"key: example.com/none>key: example.com/tenant":                                                      "jwt[0].claimMappings.extra[1].key: Duplicate value",
		"!user.username.startsWith('system:')>user.name == ''":                                               "undefined field 'name'",
		"!user.username.startsWith('system:')>":                                                              "jwt[0].userValidationRules[0].expression: Required value",
		"username: {expression: 'claims.email_verified ? claims.email : claims.sub'}>username: {claim: sub}": "jwt[0].claimMappings.username.prefix: Required value",
		"username: {expression: 'claims.email_verified ? claims.email : claims.sub'}>username: {}":           "jwt[0].claimMappings.username: Required value: claim or expression is required",
		"jwt:>anonymous: {enabled: false, conditions: [{path: /livez}]}\njwt:":                               "anonymous.conditions: Invalid value",
	} {
		from, to, _ := strings.Cut(change, ">")
		text := strings.Replace(expressions, from, to, 1)
		if text == expressions {
			t.Fatalf("%q is not in the configuration", from)
		}
		if _, err := New(Options{Config: parse(t, text), Disallowed: []string{"https://own.example"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", to, err, want)
		}
	}
	const head = "kind: AuthenticationConfiguration\napiVersion: "
	for text, want := range map[string]string{
		"":                  "auth.yaml: is empty",
		"kind: x":           `auth.yaml: kind: must be AuthenticationConfiguration, got "x"`,
		"kind: [x]":         `auth.yaml: kind: must be AuthenticationConfiguration, got ""`,
		head + "v1":         "auth.yaml: apiVersion: must be apiserver.config.k8s.io/v1",
		simple + "other: 1": "column 1: other: unknown field",
		simple + "jwt: []":  `key "jwt" already`,
		"{":                 "auth.yaml: line 1: did not find expected node content",
		head + "apiserver.config.k8s.io/v1\njwt: {issuer: {}}":           "auth.yaml: line 3 column 1: jwt: is an object, want a list",
		head + "apiserver.config.k8s.io/v1\njwt:\n- issuer:\n    url: 5": "auth.yaml: line 5 column 5: jwt[0].issuer.url: is a number, want a string",
	} {
		if _, err := ParseConfig("auth.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestHostileIssuers checks that whatever an issuer answers, its tokens are refused with the reason, within a bounded time.
func TestHostileIssuers(t *testing.T) {
	huge := strings.Repeat(" ", 10<<20)
	for name, tt := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		text   string
	}{
		"hangs": {func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, "context deadline exceeded"},
		"hangs in the body": {func(r *http.Request) (*http.Response, error) {
			resp := answer(200, "")
			resp.Body = io.NopCloser(readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, r.Context().Err() }))
			return resp, nil
		}, "context deadline exceeded"},
		"sends 10 MiB": {func(*http.Request) (*http.Response, error) { return answer(200, huge), nil }, "larger than 1048576 bytes"},
		"sends a page": {func(*http.Request) (*http.Response, error) { return answer(200, "<html>"), nil }, "invalid character"},
		"fails":        {func(*http.Request) (*http.Response, error) { return answer(500, ""), nil }, "500 Internal Server Error"},
		"is another issuer": {func(*http.Request) (*http.Response, error) {
			return answer(200, `{"issuer":"https://other.example","jwks_uri":"https://x"}`), nil
		}, `expected "https://issuer.example" got "https://other.example"`},
		"has keys in the clear": {func(*http.Request) (*http.Response, error) {
			return answer(200, `{"issuer":"https://issuer.example","jwks_uri":"http://x"}`), nil
		}, "must be an https URL"},
		"redirects for ever":  {func(r *http.Request) (*http.Response, error) { return redirect(r.URL.String()), nil }, "more than 5 redirects"},
		"redirects to http":   {func(*http.Request) (*http.Response, error) { return redirect("http://169.254.169.254/"), nil }, "redirect to http, want https"},
		"redirects to a file": {func(*http.Request) (*http.Response, error) { return redirect("file:///etc/passwd"), nil }, "want https"},
		"has 101 keys": {func(r *http.Request) (*http.Response, error) {
			p := usual()
			p.keys = slices.Repeat(p.keys, 101)
			return p.RoundTrip(r)
		}, "has 101 keys"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{answer: tt.answer}
				v := verifierOf(t, parse(t, simple), p)
				text, start := good(t, nil), time.Now()
				_, err := v.Verify(t.Context(), issuerURL, text)
				if err == nil || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%v, want %q", err, tt.text)
				}
				if took := time.Since(start); took > fetchTimeout { // of the bubble
					t.Errorf("it took %v", took)
				}
				asked := p.asked.Load()
				for range 100 {
					if _, err := v.Verify(t.Context(), issuerURL, text); err == nil {
						t.Error("accepted")
					}
				}
				if now := p.asked.Load(); time.Since(start) < fetchPause && now != asked {
					t.Errorf("asked %d more times", now-asked)
				}
			})
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func redirect(to string) *http.Response {
	r := answer(302, "")
	r.Header.Set("Location", to)
	return r
}

// TestKeysAreFetched checks when the issuer is asked.
func TestKeysAreFetched(t *testing.T) {
	next, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p := usual()
		v := verifierOf(t, parse(t, simple), p)
		n := 0
		use := func(key *rsa.PrivateKey, id string, want bool, asked int32) {
			t.Helper()
			n++
			_, err := v.Verify(t.Context(), issuerURL, token(t, jwt.SigningMethodRS256, key, id, map[string]any{"jti": fmt.Sprint(n)}))
			if (err == nil) != want || p.asked.Load() != asked {
				t.Errorf("%v; asked %d times, want %d", err, p.asked.Load(), asked)
			}
		}
		if p.asked.Load() != 0 {
			t.Error("asked before there is a token")
		}
		use(rsaKey, "a", true, 2)
		use(rsaKey, "a", true, 2)
		use(next, "b", false, 2) // too soon
		p.keys = append(p.keys, jwk("b", &next.PublicKey))
		time.Sleep(fetchPause)
		use(next, "b", true, 4)
		time.Sleep(keysLife)
		p.keys = p.keys[1:]
		use(rsaKey, "a", false, 6) // the key was withdrawn
		time.Sleep(keysLife)
		p.answer = func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
		use(next, "b", true, 7) // the issuer is down, its keys stay
	})
}

// TestFetchIsShared checks that many requests with new keys wait for one fetch, and that the end of the request that began
// it does not end it.
func TestFetchIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := usual()
		release := make(chan struct{})
		p.answer = func(r *http.Request) (*http.Response, error) {
			select {
			case <-release:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			return (&provider{keys: usual().keys}).RoundTrip(r)
		}
		v := verifierOf(t, parse(t, simple), p)
		first, end := context.WithCancel(t.Context())
		results := make(chan error, 50)
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		for i := range cap(results) {
			text := good(t, map[string]any{"jti": fmt.Sprint(i)})
			g.Go(func(ctx context.Context) {
				if i == 0 {
					ctx = first
				}
				_, err := v.Verify(ctx, issuerURL, text)
				results <- err
			})
			synctest.Wait()
		}
		end()
		close(release)
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if p.asked.Load() != 2 {
			t.Errorf("asked %d times", p.asked.Load())
		}
	})
}

// TestIssuerOverTLS uses a real server with an authority of its own.
func TestIssuerOverTLS(t *testing.T) {
	p := usual()
	var url string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/discovery" {
			fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"%s/keys"}`, issuerURL, url)
			return
		}
		data, _ := json.Marshal(map[string]any{"keys": p.keys})
		_, _ = w.Write(data)
	}))
	defer s.Close()
	url = s.URL
	c := parse(t, simple)
	c.JWT[0].Issuer.DiscoveryURL = url + "/discovery"
	refused, err := New(Options{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := refused.Verify(t.Context(), issuerURL, good(t, nil)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without its authority: %v", err)
	}
	c.JWT[0].Issuer.CertificateAuthority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	v, err := New(Options{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	if u, err := v.Verify(t.Context(), issuerURL, good(t, nil)); err != nil || u.Name != "p:jane" {
		t.Errorf("%v, %v", u, err)
	}
}

// TestFileIsFollowed changes the file as editors and kubelets do.
func TestFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(simple)
	log := &lines{seen: make(chan string, 100)}
	v, err := New(Options{File: path, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(ctx, 0)
	ended := make(chan error, 1)
	g.Go(func(ctx context.Context) { ended <- v.Run(ctx) })
	issuers := func() []string { return slices.Sorted(maps.Keys(*v.issuers.Load())) }
	write(strings.Replace(simple, "https://issuer", "https://second", 1))
	log.wait(t, "reloaded authentication config")
	if got := issuers(); len(got) != 1 || got[0] != "https://second.example" {
		t.Errorf("the issuers are %q", got)
	}
	write(strings.Replace(simple, "https://issuer", "http://third", 1))
	log.wait(t, "URL scheme must be https")
	write(simple + "anonymous: {enabled: false}\n")
	log.wait(t, "changed from initial configuration file")
	if got := issuers(); len(got) != 1 || got[0] != "https://second.example" {
		t.Errorf("after a bad file the issuers are %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	g.Stop()
}

// lines is a log of which a test waits for lines.
type lines struct{ seen chan string }

func (l *lines) Write(b []byte) (int, error) {
	l.seen <- string(bytes.Clone(b))
	return len(b), nil
}

func (l *lines) wait(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case line := <-l.seen:
			if strings.Contains(line, text) {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("no line with %q", text)
		}
	}
}

func TestFlags(t *testing.T) {
	c, err := (&Flags{IssuerURL: issuerURL, ClientID: "cluster", GroupsClaim: "groups", RequiredClaims: []string{"hd=x=y"}}).Config()
	if err != nil {
		t.Fatal(err)
	}
	v := verifierOf(t, c, usual())
	u, err := v.Verify(t.Context(), issuerURL, good(t, map[string]any{"hd": "x=y", "groups": "a"}))
	if err != nil || u.Name != issuerURL+"#jane" || u.Groups[0] != "a" {
		t.Errorf("%v, %v", u, err)
	}
	if _, err := v.Verify(t.Context(), issuerURL, token(t, jwt.SigningMethodRS512, rsaKey, "a", map[string]any{"hd": "x=y"})); err == nil {
		t.Error("an algorithm that is not asked for is accepted")
	}
	for _, tt := range []struct{ claim, prefix, want string }{{"", "-", ""}, {"email", "", ""}, {"name", "", issuerURL + "#"}, {"name", "x:", "x:"}} {
		c, err := (&Flags{IssuerURL: issuerURL, ClientID: "c", UsernameClaim: tt.claim, UsernamePrefix: tt.prefix}).Config()
		if err != nil || *c.JWT[0].ClaimMappings.Username.Prefix != tt.want {
			t.Errorf("%+v: %+v, %v", tt, c, err)
		}
	}
	for want, f := range map[string]Flags{
		"must be specified together": {IssuerURL: issuerURL},
		"unsupported signing alg":    {IssuerURL: issuerURL, ClientID: "c", SigningAlgs: []string{"HS256"}},
		"--oidc-required-claim":      {IssuerURL: issuerURL, ClientID: "c", RequiredClaims: []string{"x"}},
		"--oidc-ca-file":             {IssuerURL: issuerURL, ClientID: "c", CAFile: "/does/not/exist"},
	} {
		if _, err := f.Config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}
