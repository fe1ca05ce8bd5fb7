package oidc

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/h2"
)

// Limits on an issuer's answers, and on how often and how long it is asked.
const (
	maxDocument  = 1 << 20 // bytes
	maxKeys      = 100
	maxRedirects = 5

	fetchTimeout = 10 * time.Second // for the discovery document and the keys together
	fetchPause   = 10 * time.Second // between the end of a fetch and the next, at least
	keysLife     = time.Hour        // after which they are fetched again, when a token comes
)

// A publicKey verifies tokens.
type publicKey struct {
	id        string
	algorithm string // empty means any that the key is for
	key       crypto.PublicKey
}

// keys are the keys of an issuer, fetched when they are needed. It is safe for concurrent use.
//
// One goroutine at a time fetches; others that need a new key wait for it. A fetch goes on if the request that began it
// ends. If it fails, the keys of before stay.
type keys struct {
	issuer, discovery string
	client            *http.Client

	mu      sync.Mutex
	all     []publicKey   // guarded by mu; replaced, not changed
	fetched time.Time     // guarded by mu; when all was fetched
	ended   time.Time     // guarded by mu; when the last fetch ended
	failure error         // guarded by mu; of the last fetch
	flight  chan struct{} // guarded by mu; closed at the end of the fetch that is under way; nil without one
}

// newKeys returns the keys of an issuer. Discovery is the URL of its discovery document; empty means that below the
// issuer's URL. A nil pool means the authorities of the operating system.
func newKeys(issuer, discovery string, pool *x509.CertPool) *keys {
	if discovery == "" {
		discovery = strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	}
	return &keys{issuer: issuer, discovery: discovery, client: &http.Client{
		Transport: h2.Client(&http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			DisableKeepAlives:      true, // the next fetch is far away
			MaxResponseHeaderBytes: 64 << 10,
		}),
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case len(via) > maxRedirects:
				return fmt.Errorf("more than %d redirects", maxRedirects)
			case r.URL.Scheme != "https":
				return fmt.Errorf("redirect to %s, want https", r.URL.Scheme)
			}
			return nil
		},
	}}
}

// find returns the keys with which a token with this key id and algorithm may be signed; without an id, all that fit. It
// fetches them if that is needed and allowed. The error says why there are none.
func (k *keys) find(ctx context.Context, id, algorithm string) ([]publicKey, error) {
	for {
		k.mu.Lock()
		found := fitting(k.all, id, algorithm)
		now := time.Now()
		old := now.Sub(k.fetched) >= keysLife
		flight := k.flight
		switch {
		case len(found) > 0 && (!old || flight != nil || now.Sub(k.ended) < fetchPause):
			k.mu.Unlock()
			return found, nil
		case flight == nil && now.Sub(k.ended) < fetchPause:
			failure := k.failure
			k.mu.Unlock()
			if failure != nil {
				return nil, failure
			}
			return nil, fmt.Errorf("the issuer has no key %q for the algorithm %s", id, algorithm)
		case flight == nil:
			flight = make(chan struct{})
			k.flight = flight
			k.mu.Unlock()
			k.fetch(context.WithoutCancel(ctx), flight)
			continue
		}
		k.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fetch replaces the keys, and ends the flight.
func (k *keys) fetch(ctx context.Context, flight chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	all, err := k.request(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure = err; err == nil {
		k.all, k.fetched = all, time.Now()
	}
	k.flight, k.ended = nil, time.Now()
	close(flight)
}

func (k *keys) request(ctx context.Context) ([]publicKey, error) {
	var doc struct {
		Issuer  string `json:"issuer"`
		KeysURL string `json:"jwks_uri"`
	}
	if err := k.get(ctx, k.discovery, &doc); err != nil {
		return nil, err
	}
	if doc.Issuer != k.issuer {
		return nil, fmt.Errorf("issuer did not match the issuer returned by provider, expected %q got %q", k.issuer, doc.Issuer)
	}
	if !strings.HasPrefix(doc.KeysURL, "https://") {
		return nil, fmt.Errorf("jwks_uri of the discovery document: must be an https URL, got %q", doc.KeysURL)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, doc.KeysURL, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%s has %d keys, want at most %d", doc.KeysURL, len(set.Keys), maxKeys)
	}
	var all []publicKey
	for _, data := range set.Keys {
		if key, err := parseKey(data); err == nil { // of others an issuer may have any
			all = append(all, key)
		}
	}
	return all, nil
}

// get reads a JSON document.
func (k *keys) get(ctx context.Context, url string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := k.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	if len(body) > maxDocument {
		return fmt.Errorf("GET %s: the answer is larger than %d bytes", url, maxDocument)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	return nil
}

// parseKey reads a JSON Web Key (RFC 7517) of type RSA or EC.
func parseKey(data []byte) (publicKey, error) {
	var j struct {
		Type      string `json:"kty"`
		Use       string `json:"use"`
		ID        string `json:"kid"`
		Algorithm string `json:"alg"`
		Curve     string `json:"crv"`
		N         string `json:"n"`
		E         string `json:"e"`
		X         string `json:"x"`
		Y         string `json:"y"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return publicKey{}, err
	}
	if j.Use != "" && j.Use != "sig" {
		return publicKey{}, fmt.Errorf("use %q is not sig", j.Use)
	}
	k := publicKey{id: j.ID, algorithm: j.Algorithm}
	switch j.Type {
	case "RSA":
		n, err := number(j.N)
		if err != nil {
			return publicKey{}, err
		}
		e, err := number(j.E)
		if err != nil {
			return publicKey{}, err
		}
		// Larger numbers make verifying slow.
		if n.BitLen() < 2048 || n.BitLen() > 8192 || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 {
			return publicKey{}, errors.New("the RSA key has unusual numbers")
		}
		k.key = &rsa.PublicKey{N: n, E: int(e.Int64())}
	case "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[j.Curve]
		if curve == nil {
			return publicKey{}, fmt.Errorf("unknown curve %q", j.Curve)
		}
		size := (curve.Params().BitSize + 7) / 8
		point := make([]byte, 1+2*size)
		point[0] = 4
		for i, text := range []string{j.X, j.Y} {
			part, err := base64.RawURLEncoding.DecodeString(text)
			if err != nil || len(part) != size {
				return publicKey{}, errors.New("a coordinate has the wrong length")
			}
			copy(point[1+i*size:], part)
		}
		key, err := ecdsa.ParseUncompressedPublicKey(curve, point)
		if err != nil {
			return publicKey{}, err
		}
		k.key = key
	default:
		return publicKey{}, fmt.Errorf("unknown key type %q", j.Type)
	}
	return k, nil
}

func number(text string) (*big.Int, error) {
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, err
	}
	return new(big.Int).SetBytes(data), nil
}

// fitting returns the keys for a key id and an algorithm. The type of a key decides for which algorithms it is, so that a
// public key is never used as the secret of another algorithm.
func fitting(all []publicKey, id, algorithm string) []publicKey {
	var found []publicKey
	for _, k := range all {
		if id != "" && k.id != id || k.algorithm != "" && k.algorithm != algorithm {
			continue
		}
		switch key := k.key.(type) {
		case *rsa.PublicKey:
			if strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS") {
				found = append(found, k)
			}
		case *ecdsa.PublicKey:
			want := map[string]int{"ES256": 256, "ES384": 384, "ES512": 521}
			if want[algorithm] == key.Curve.Params().BitSize {
				found = append(found, k)
			}
		}
	}
	return found
}
