package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/cel-go/common/types"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// Algorithms returns the algorithms with which tokens may be signed.
func Algorithms() []string {
	return []string{"ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}
}

// Texts of claims.
const (
	issuerClaim   = "iss"
	emailClaim    = "email"
	verifiedClaim = "email_verified"

	// notBeforeLeeway is for issuers whose clock is ahead, as upstream's library has it.
	notBeforeLeeway = 5 * time.Minute

	credentialID = "authentication.kubernetes.io/credential-id"
)

// An issuer verifies the tokens of one issuer. It is safe for concurrent use.
type issuer struct {
	config   *JWT
	keys     *keys
	required map[string]string // values of claims

	username, groups, uid        *program // nil where the configuration names a claim
	extra, claimRules, userRules []*program
}

// claims are those of a token, by name.
type claims map[string]json.RawMessage

// into reads a claim that must be there.
func (c claims) into(name string, v any) error {
	data, ok := c[name]
	if !ok {
		return errors.New("claim not present")
	}
	return json.Unmarshal(data, v)
}

// GetExpirationTime implements [jwt.Claims]. The getters are not used: the claims are checked here.
func (c claims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, nil }
func (c claims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (c claims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, nil }
func (c claims) GetIssuer() (string, error)                   { return "", nil }
func (c claims) GetSubject() (string, error)                  { return "", nil }
func (c claims) GetAudience() (jwt.ClaimStrings, error)       { return nil, nil }

// verify returns the user of a token and when it expires.
func (is *issuer) verify(ctx context.Context, token string, now time.Time) (*auth.User, time.Time, error) {
	c, err := is.signed(ctx, token)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("oidc: verify token: %w", err)
	}
	expires, err := is.check(c, now)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("oidc: verify token: %w", err)
	}
	u, err := is.user(ctx, c)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("oidc: %w", err)
	}
	return u, expires, nil
}

// signed returns the claims of a token whose signature is good.
func (is *issuer) signed(ctx context.Context, token string) (claims, error) {
	algorithms := is.config.Algorithms
	if len(algorithms) == 0 {
		algorithms = Algorithms()
	}
	var c claims
	parser := jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	_, err := parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if _, ok := t.Header["crit"]; ok {
			return nil, errors.New("it has critical headers")
		}
		id, _ := t.Header["kid"].(string)
		found, err := is.keys.find(ctx, id, t.Method.Alg())
		if err != nil {
			return nil, fmt.Errorf("failed to verify signature: %w", err)
		}
		set := jwt.VerificationKeySet{}
		for _, k := range found {
			set.Keys = append(set.Keys, k.key)
		}
		return set, nil
	})
	return c, err
}

// check checks whether a token is of this issuer, for one of its audiences, and valid now.
func (is *issuer) check(c claims, now time.Time) (expires time.Time, err error) {
	var name string
	if err := c.into(issuerClaim, &name); err != nil || canonical(name) != is.config.Issuer.URL {
		return expires, fmt.Errorf("id token issued by a different provider, expected %q got %q", is.config.Issuer.URL, name)
	}
	var audiences stringOrList
	if err := c.into("aud", &audiences); err != nil {
		return expires, fmt.Errorf("parse claim aud: %w", err)
	}
	if !slices.ContainsFunc(is.config.Issuer.Audiences, func(a string) bool { return slices.Contains(audiences, a) }) {
		return expires, fmt.Errorf("expected audience in %q got %q", is.config.Issuer.Audiences, []string(audiences))
	}
	var until, from jwt.NumericDate
	if err := c.into("exp", &until); err != nil {
		return expires, fmt.Errorf("parse claim exp: %w", err)
	}
	if !now.Before(until.Time) {
		return expires, fmt.Errorf("token is expired (Token Expiry: %v)", until.UTC())
	}
	if _, ok := c["nbf"]; ok {
		if err := c.into("nbf", &from); err != nil {
			return expires, fmt.Errorf("parse claim nbf: %w", err)
		}
		if now.Add(notBeforeLeeway).Before(from.Time) {
			return expires, fmt.Errorf("current time %v before the nbf (not before) time: %v", now.UTC(), from.UTC())
		}
	}
	return until.Time, nil
}

// canonical returns the issuer that a claim means: Google's has two spellings.
func canonical(issuer string) string {
	if issuer == "accounts.google.com" {
		return "https://accounts.google.com"
	}
	return issuer
}

// user returns the user for whom the claims are, after all checks.
func (is *issuer) user(ctx context.Context, c claims) (*auth.User, error) {
	var values any
	if is.evaluates() {
		var err error
		if values, err = c.values(is.escapes()); err != nil {
			return nil, err
		}
	}
	u := &auth.User{}
	var err error
	if u.Name, err = is.usernameOf(ctx, c, values); err != nil {
		return nil, err
	}
	if u.Groups, err = is.groupsOf(ctx, c, values); err != nil {
		return nil, err
	}
	if u.UID, err = is.uidOf(ctx, c, values); err != nil {
		return nil, err
	}
	if u.Extra, err = is.extraOf(ctx, c, values); err != nil {
		return nil, err
	}
	if err := is.checkRequired(c); err != nil {
		return nil, err
	}
	for _, rule := range is.claimRules {
		if err := rule.check(ctx, values); err != nil {
			return nil, fmt.Errorf("error evaluating claim validation expression: %w", err)
		}
	}
	for _, rule := range is.userRules {
		extra := u.Extra
		if rule.escapes {
			extra = map[string][]string{}
			for key, v := range u.Extra {
				extra[key] = v
				if escaped, ok := escape(key); ok {
					extra[escaped] = v
				}
			}
		}
		if err := rule.check(ctx, userInfo{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: extra}); err != nil {
			return nil, fmt.Errorf("error evaluating user info validation rule: %w", err)
		}
	}
	return u, nil
}

func (is *issuer) programs() []*program {
	all := append(slices.Concat(is.extra, is.claimRules), is.username, is.groups, is.uid)
	return slices.DeleteFunc(all, func(p *program) bool { return p == nil })
}

// evaluates reports whether there are expressions over claims.
func (is *issuer) evaluates() bool { return len(is.programs()) > 0 }

func (is *issuer) escapes() bool {
	return slices.ContainsFunc(is.programs(), func(p *program) bool { return p.escapes })
}

// values returns the claims as expressions see them.
func (c claims) values(escaped bool) (any, error) {
	out := make(map[string]any, len(c))
	for name, data := range c {
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			return nil, fmt.Errorf("claim %q failed to unmarshal: %w", name, err)
		}
		out[name] = v
	}
	if escaped {
		return withEscapes(out), nil
	}
	return out, nil
}

func (p *program) check(ctx context.Context, variable any) error {
	v, err := p.eval(ctx, variable)
	if err != nil {
		return err
	}
	ok, isBool := v.(types.Bool)
	switch {
	case !isBool:
		return errors.New("validation expression must return a boolean")
	case !bool(ok):
		return fmt.Errorf("validation expression '%s' failed: %s", p.text, p.message)
	}
	return nil
}

func (p *program) text1(ctx context.Context, values any, what string) (string, error) {
	v, err := p.eval(ctx, values)
	if err != nil {
		return "", fmt.Errorf("error evaluating %s claim expression: %w", what, err)
	}
	s, ok := v.(types.String)
	if !ok {
		return "", fmt.Errorf("error evaluating %[1]s claim expression: %[1]s claim expression must return a string", what)
	}
	return string(s), nil
}

func (is *issuer) usernameOf(ctx context.Context, c claims, values any) (string, error) {
	if is.username != nil {
		name, err := is.username.text1(ctx, values, "username")
		if err == nil && name == "" {
			err = errors.New("empty username via CEL expression is not allowed")
		}
		return name, err
	}
	m := &is.config.ClaimMappings.Username
	var name string
	if err := c.into(m.Claim, &name); err != nil {
		return "", fmt.Errorf("parse username claims %q: %w", m.Claim, err)
	}
	if _, ok := c[verifiedClaim]; ok && m.Claim == emailClaim {
		var verified bool
		if err := c.into(verifiedClaim, &verified); err != nil {
			return "", fmt.Errorf("parse 'email_verified' claim: %w", err)
		}
		if !verified {
			return "", errors.New("email not verified")
		}
	}
	return prefixed(m.Prefix, name), nil
}

func prefixed(prefix *string, text string) string {
	if prefix == nil {
		return text
	}
	return *prefix + text
}

func (is *issuer) groupsOf(ctx context.Context, c claims, values any) ([]string, error) {
	m := &is.config.ClaimMappings.Groups
	if _, ok := c[m.Claim]; ok && m.Claim != "" {
		var groups stringOrList
		if err := c.into(m.Claim, &groups); err != nil {
			return nil, fmt.Errorf("parse groups claim %q: %w", m.Claim, err)
		}
		for i := range groups {
			groups[i] = prefixed(m.Prefix, groups[i])
		}
		return groups, nil
	}
	if is.groups == nil {
		return nil, nil
	}
	v, err := is.groups.eval(ctx, values)
	if err != nil {
		return nil, fmt.Errorf("error evaluating group claim expression: %w", err)
	}
	groups, err := texts(v)
	if err != nil {
		return nil, fmt.Errorf("error evaluating group claim expression: %w", err)
	}
	return groups, nil
}

func (is *issuer) uidOf(ctx context.Context, c claims, values any) (uid string, err error) {
	if claim := is.config.ClaimMappings.UID.Claim; claim != "" {
		if err := c.into(claim, &uid); err != nil {
			return "", fmt.Errorf("parse uid claim %q: %w", claim, err)
		}
		return uid, nil
	}
	if is.uid == nil {
		return "", nil
	}
	return is.uid.text1(ctx, values, "uid")
}

func (is *issuer) extraOf(ctx context.Context, c claims, values any) (map[string][]string, error) {
	extra := map[string][]string{}
	var id string
	if c.into("jti", &id) == nil && id != "" {
		extra[credentialID] = []string{"JTI=" + id}
	}
	for _, p := range is.extra {
		v, err := p.eval(ctx, values)
		if err != nil {
			return nil, err
		}
		all, err := texts(v)
		if err != nil {
			return nil, fmt.Errorf("error evaluating extra claim expression: %s: %w", p.text, err)
		}
		if len(all) > 0 {
			extra[p.key] = all
		}
	}
	return extra, nil
}

func (is *issuer) checkRequired(c claims) error {
	for claim, want := range is.required {
		if _, ok := c[claim]; !ok {
			return fmt.Errorf("required claim %s not present in ID token", claim)
		}
		var got string
		if err := c.into(claim, &got); err != nil {
			return fmt.Errorf("parse claim %s: %w", claim, err)
		}
		if got != want {
			return fmt.Errorf("required claim %s value does not match. Got = %s, want = %s", claim, got, want)
		}
	}
	return nil
}

// stringOrList is a claim with one text or several.
type stringOrList []string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *stringOrList) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, &list) == nil {
		*s = list
		return nil
	}
	var one string
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*s = []string{one}
	return nil
}
