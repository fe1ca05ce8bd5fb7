package auth

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
)

// The paths of a [Metadata].
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/openid/v1/jwks"
)

// Metadata serves the documents to verify the tokens of service accounts: the discovery document of OpenID Connect and
// the public keys.
type Metadata struct {
	tokens  *Tokens
	keysURL string
}

// NewMetadata returns a handler of [DiscoveryPath] and [KeysPath]. Base is the URL of this server, without a path, at
// which other programs find the keys.
func NewMetadata(tokens *Tokens, base string) *Metadata { return &Metadata{tokens, base + KeysPath} }

// document is the part of the provider metadata that verifying needs.
// https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderMetadata
type document struct {
	Issuer        string   `json:"issuer"`
	KeysURL       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// publicKey is a JSON Web Key (RFC 7517) on an elliptic curve.
type publicKey struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv"`
	Algorithm string `json:"alg"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// ServeHTTP implements [http.Handler]. Clients may keep the answer for an hour, as upstream's.
func (m *Metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	var answer any
	contentType := "application/json"
	switch r.URL.Path {
	case DiscoveryPath:
		answer = document{m.tokens.opts.Issuer, m.keysURL, []string{"id_token"}, []string{"public"}, []string{"ES256"}}
	case KeysPath:
		contentType, answer = "application/jwk-set+json", m.keys()
	default:
		http.NotFound(w, r)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// keys returns the key set, the key that signs first.
func (m *Metadata) keys() map[string][]publicKey {
	now := m.tokens.keys.Load()
	all := []publicKey{}
	for _, id := range now.order {
		point, err := now.public[id].Bytes() // 4, X, Y
		if err != nil {
			continue // not a point of the curve; SetKeys got none
		}
		half := (len(point) - 1) / 2
		all = append(all, publicKey{
			Use: "sig", Type: "EC", ID: id, Curve: "P-256", Algorithm: "ES256",
			X: base64.RawURLEncoding.EncodeToString(point[1 : 1+half]), Y: base64.RawURLEncoding.EncodeToString(point[1+half:]),
		})
	}
	return map[string][]publicKey{"keys": all}
}
