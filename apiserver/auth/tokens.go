package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sampan-io/sampan/catalog"
)

// DefaultIssuer is the issuer and the audience of tokens where nothing else is
// configured.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

// A Lookup reads stored objects, at the newest revision and from memory, because
// it is asked with every request. An object that does not exist is a NotFound
// status error.
type Lookup interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)
}

// TokensOptions configures [Tokens]. Key and Objects are required.
type TokensOptions struct {
	// Key signs and verifies; its curve is P-256.
	Key *ecdsa.PrivateKey

	// Former are keys whose tokens are still believed.
	Former []*ecdsa.PublicKey

	// Objects finds the service accounts and what tokens are bound to.
	Objects Lookup

	// Used is called with the Secret of each legacy token that is used for the first time on a day, which is to get the
	// label that [MarkUsed] makes. It must not block. Nil means that uses are not recorded.
	Used func(*corev1.Secret)

	Issuer    string        // empty means DefaultIssuer
	Audiences []string      // of this API server; nil means the issuer alone
	Longest   time.Duration // the longest life of a token; longer wishes are cut. 0 means 24 hours
}

// Tokens issues and verifies the tokens of service accounts. It is safe for
// concurrent use.
type Tokens struct {
	opts   TokensOptions
	keys   atomic.Pointer[tokenKeys]
	parser *jwt.Parser
	legacy *jwt.Parser
	recent recent
}

// tokenKeys are the keys of one time. They are not changed.
type tokenKeys struct {
	key    *ecdsa.PrivateKey
	id     string
	public map[string]*ecdsa.PublicKey // by key id, with that of key
	order  []string                    // the key ids, that of key first
}

// NewTokens returns tokens that are signed with opts.Key.
func NewTokens(opts TokensOptions) (*Tokens, error) {
	if opts.Key == nil || opts.Objects == nil {
		return nil, errors.New("auth: TokensOptions needs a Key and Objects")
	}
	if opts.Issuer == "" {
		opts.Issuer = DefaultIssuer
	}
	if opts.Audiences == nil {
		opts.Audiences = []string{opts.Issuer}
	}
	if opts.Longest == 0 {
		opts.Longest = 24 * time.Hour
	}
	t := &Tokens{
		opts: opts,
		// Strict decoding refuses a signature whose unused last bits were
		// altered. That would forge nothing, but a token shall have one spelling.
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}),
			jwt.WithIssuer(opts.Issuer),
			jwt.WithExpirationRequired(),
			jwt.WithStrictDecoding(),
		),
		legacy: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}),
			jwt.WithIssuer(legacyIssuer),
			jwt.WithStrictDecoding(),
		),
	}
	if err := t.SetKeys(opts.Key, opts.Former); err != nil {
		return nil, err
	}
	return t, nil
}

// SetKeys replaces the keys: key signs new tokens, and tokens of key and of former are believed from now on. Tokens of
// other keys become invalid at once. All keys are on the curve P-256; otherwise it changes nothing and returns an error.
func (t *Tokens) SetKeys(key *ecdsa.PrivateKey, former []*ecdsa.PublicKey) error {
	keys := &tokenKeys{key: key, public: map[string]*ecdsa.PublicKey{}}
	for _, public := range append([]*ecdsa.PublicKey{&key.PublicKey}, former...) {
		if public.Curve != elliptic.P256() {
			return errors.New("auth: a key for tokens is not on the curve P-256")
		}
		id, err := keyID(public)
		if err != nil {
			return err
		}
		if _, twice := keys.public[id]; twice {
			continue
		}
		keys.public[id] = public
		keys.order = append(keys.order, id)
	}
	keys.id = keys.order[0]
	t.keys.Store(keys)
	return nil
}

// issues reports whether tokens of that issuer are this cluster's own.
func (t *Tokens) issues(issuer string) bool { return issuer == t.opts.Issuer || issuer == legacyIssuer }

func keyID(key *ecdsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("auth: encoding a public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// claims are the claims of a token, in Kubernetes' form.
type claims struct {
	jwt.RegisteredClaims
	Kubernetes binding `json:"kubernetes.io"`
}

type binding struct {
	Namespace      string     `json:"namespace"`
	ServiceAccount reference  `json:"serviceaccount"`
	Pod            *reference `json:"pod,omitempty"`
	Secret         *reference `json:"secret,omitempty"`
	Node           *reference `json:"node,omitempty"`
}

type reference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

func (t *Tokens) sign(b binding, audiences []string, life time.Duration) (string, time.Time, error) {
	now := time.Now()
	expires := now.Add(life)
	signed, err := t.signed(claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    t.opts.Issuer,
			Subject:   ServiceAccountUser(b.Namespace, b.ServiceAccount.Name),
			Audience:  audiences,
			ExpiresAt: jwt.NewNumericDate(expires),
			NotBefore: jwt.NewNumericDate(now),
			IssuedAt:  jwt.NewNumericDate(now),
			ID:        string(uuid.NewUUID()),
		},
		Kubernetes: b,
	})
	return signed, expires.Truncate(time.Second), err
}

// signed returns a token with these claims.
func (t *Tokens) signed(c jwt.Claims) (string, error) {
	token, keys := jwt.NewWithClaims(jwt.SigningMethodES256, c), t.keys.Load()
	token.Header["kid"] = keys.id
	for {
		signed, err := token.SignedString(keys.key)
		if err != nil {
			return "", fmt.Errorf("signing a token: %w", err)
		}
		// Every other signature has a large s; see low.
		if low(signed) {
			return signed, nil
		}
	}
}

// low reports whether the number s of a token's signature is in the lower half of its range. If (r,
// s) is a signature so is (r, -s), and no key is needed to turn one into the other. Only the lower
// one is made and accepted, so that a token has one spelling.
func low(token string) bool {
	signature, err := base64.RawURLEncoding.Strict().DecodeString(token[strings.LastIndexByte(token, '.')+1:])
	if err != nil || len(signature) != 64 {
		return false
	}
	half := new(big.Int).Rsh(elliptic.P256().Params().N, 1)
	return new(big.Int).SetBytes(signature[32:]).Cmp(half) <= 0
}

// longestToken is far above the size of a token with many audiences, and keeps a
// stranger from making us decode megabytes.
const longestToken = 16 << 10

// Verify returns whose token it is, or an Unauthorized status error. The
// token must be signed by a key of ours, be for an audience of ours, not be expired,
// and everything that it is bound to must still exist.
func (t *Tokens) Verify(ctx context.Context, token string) (*User, error) {
	known, err := t.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(known.audiences, func(a string) bool { return slices.Contains(t.opts.Audiences, a) }) {
		return nil, apierrors.NewUnauthorized(fmt.Sprintf("the bearer token is for the audiences %q and not for this API server", known.audiences))
	}
	return known.user, nil
}

// verify does what Verify does, for any audience.
func (t *Tokens) verify(ctx context.Context, token string) (*identity, error) {
	if len(token) > longestToken {
		return nil, apierrors.NewUnauthorized("the bearer token is too long")
	}
	// Decoders of base64 skip line ends; a token has one spelling.
	if strings.ContainsAny(token, "\r\n") {
		return nil, apierrors.NewUnauthorized("the bearer token contains line breaks")
	}
	sum := sha256.Sum256([]byte(token))
	known, ok := t.recent.get(sum)
	if !ok || t.keys.Load().public[known.keyID] == nil {
		var err error
		if known, err = t.parse(token); err != nil {
			return nil, err
		}
		t.recent.put(sum, known)
	}
	if known.legacy {
		if err := t.checkLegacy(ctx, token, known.binding); err != nil {
			return nil, err
		}
		return known, nil
	}
	if now := time.Now(); !now.Before(known.expires) {
		return nil, apierrors.NewUnauthorized("the bearer token expired at " + known.expires.UTC().Format(time.RFC3339))
	}
	if err := t.stillBound(ctx, known.binding); err != nil {
		return nil, err
	}
	return known, nil
}

// identity is the contents of a token with a good signature.
type identity struct {
	user      *User
	audiences []string
	binding   binding
	expires   time.Time // of a legacy token: never
	keyID     string
	legacy    bool
}

func (t *Tokens) parse(token string) (*identity, error) {
	if issuer, _ := claimedIssuer(token); issuer == legacyIssuer {
		return t.parseLegacy(token)
	}
	var c claims
	keyID, err := t.parseWith(t.parser, token, &c)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && c.ExpiresAt != nil:
		return nil, apierrors.NewUnauthorized("the bearer token expired at " + c.ExpiresAt.UTC().Format(time.RFC3339))
	case err != nil:
		return nil, apierrors.NewUnauthorized("the bearer token is not valid: " + err.Error())
	}
	b := c.Kubernetes
	name := ServiceAccountUser(b.Namespace, b.ServiceAccount.Name)
	if b.Namespace == "" || b.ServiceAccount.Name == "" || c.Subject != name {
		return nil, apierrors.NewUnauthorized("the bearer token is not one of a service account")
	}
	u := &User{
		Name:   name,
		UID:    string(b.ServiceAccount.UID),
		Groups: []string{GroupServiceAccounts, GroupServiceAccounts + ":" + b.Namespace, GroupAuthenticated},
		Extra:  map[string][]string{},
	}
	if c.ID != "" {
		u.Extra[credentialID] = []string{"JTI=" + c.ID}
	}
	if b.Pod != nil {
		u.Extra["authentication.kubernetes.io/pod-name"] = []string{b.Pod.Name}
		u.Extra["authentication.kubernetes.io/pod-uid"] = []string{string(b.Pod.UID)}
	}
	if b.Node != nil {
		u.Extra[nodeNameKey] = []string{b.Node.Name}
		u.Extra["authentication.kubernetes.io/node-uid"] = []string{string(b.Node.UID)}
	}
	return &identity{user: u, audiences: c.Audience, binding: b, expires: c.ExpiresAt.Time, keyID: keyID}, nil
}

// parseWith parses a token into c and returns the id of the key that signed it.
func (t *Tokens) parseWith(parser *jwt.Parser, token string, c jwt.Claims) (keyID string, err error) {
	_, err = parser.ParseWithClaims(token, c, func(tok *jwt.Token) (any, error) {
		keyID, _ = tok.Header["kid"].(string)
		if key := t.keys.Load().public[keyID]; key != nil {
			return key, nil
		}
		return nil, errors.New("it is signed with a key that this cluster does not have")
	})
	if err == nil && !low(token) {
		err = errors.New("its signature is not in the form that this cluster issues")
	}
	return keyID, err
}

// afterDeletion is how long tokens stay good that are bound to an object whose
// deletion was asked for and whose grace period is over: enough for its last words.
const afterDeletion = time.Minute

// stillBound checks that every object that the token is bound to still exists and is still the
// same. The node in a pod's token is information for its reader and is not checked.
func (t *Tokens) stillBound(ctx context.Context, b binding) error {
	if err := t.same(ctx, "serviceaccounts", b.Namespace, b.ServiceAccount); err != nil {
		return err
	}
	if b.Pod != nil {
		if err := t.same(ctx, "pods", b.Namespace, *b.Pod); err != nil {
			return err
		}
	}
	if b.Secret != nil {
		if err := t.same(ctx, "secrets", b.Namespace, *b.Secret); err != nil {
			return err
		}
	}
	if b.Node != nil && b.Pod == nil {
		if err := t.same(ctx, "nodes", "", *b.Node); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tokens) same(ctx context.Context, resource, namespace string, ref reference) error {
	o, err := t.opts.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource(resource), namespace, ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return apierrors.NewUnauthorized(fmt.Sprintf("the bearer token is bound to %s %q, which no longer exists", resource, ref.Name))
	case err != nil:
		return fmt.Errorf("looking up what a token is bound to: %w", err)
	case o.GetUID() != ref.UID:
		return apierrors.NewUnauthorized(fmt.Sprintf("the bearer token is bound to another %s %q than the one that exists now", resource, ref.Name))
	}
	if d := o.GetDeletionTimestamp(); d != nil && time.Since(d.Time) > afterDeletion {
		return apierrors.NewUnauthorized(fmt.Sprintf("the bearer token is bound to %s %q, which is deleted", resource, ref.Name))
	}
	return nil
}
