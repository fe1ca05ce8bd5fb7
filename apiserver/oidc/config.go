package oidc

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/document"
)

// A Config is the contents of an AuthenticationConfiguration.
type Config struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	JWT        []JWT      `json:"jwt,omitempty"`
	Anonymous  *Anonymous `json:"anonymous,omitempty"`
}

// Anonymous says which requests without credentials are served.
type Anonymous struct {
	Enabled    bool        `json:"enabled"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// A Condition is a path at which requests without credentials are served.
type Condition struct {
	Path string `json:"path"`
}

// A JWT configures the tokens of one issuer.
type JWT struct {
	Issuer               IssuerConfig  `json:"issuer"`
	ClaimValidationRules []ClaimRule   `json:"claimValidationRules,omitempty"`
	ClaimMappings        ClaimMappings `json:"claimMappings"`
	UserValidationRules  []UserRule    `json:"userValidationRules,omitempty"`
	Algorithms           []string      `json:"-"` // empty means all
}

// An IssuerConfig is the issuer of tokens, and the audiences that they must have.
type IssuerConfig struct {
	URL                  string   `json:"url"`
	DiscoveryURL         string   `json:"discoveryURL,omitempty"`
	CertificateAuthority string   `json:"certificateAuthority,omitempty"`
	Audiences            []string `json:"audiences,omitempty"`
	AudienceMatchPolicy  string   `json:"audienceMatchPolicy,omitempty"`
	EgressSelectorType   string   `json:"egressSelectorType,omitempty"`
}

// A ClaimRule is a claim that a token must have with a value, or an expression over the claims that must be true.
type ClaimRule struct {
	Claim         string `json:"claim,omitempty"`
	RequiredValue string `json:"requiredValue,omitempty"`
	Expression    string `json:"expression,omitempty"`
	Message       string `json:"message,omitempty"`
}

// A UserRule is an expression over the user that must be true.
type UserRule struct {
	Expression string `json:"expression"`
	Message    string `json:"message,omitempty"`
}

// ClaimMappings says which user a token is for.
type ClaimMappings struct {
	Username PrefixedMapping `json:"username"`
	Groups   PrefixedMapping `json:"groups"`
	UID      Mapping         `json:"uid"`
	Extra    []ExtraMapping  `json:"extra,omitempty"`
}

// A PrefixedMapping is a claim with a prefix for its value, or an expression.
type PrefixedMapping struct {
	Claim      string  `json:"claim,omitempty"`
	Prefix     *string `json:"prefix,omitempty"`
	Expression string  `json:"expression,omitempty"`
}

// A Mapping is a claim or an expression.
type Mapping struct {
	Claim      string `json:"claim,omitempty"`
	Expression string `json:"expression,omitempty"`
}

// An ExtraMapping is an expression for the value of an extra key.
type ExtraMapping struct {
	Key             string `json:"key"`
	ValueExpression string `json:"valueExpression"`
}

const (
	configGroup = "apiserver.config.k8s.io"
	configKind  = "AuthenticationConfiguration"
	maxJWT      = 64      // as upstream
	maxConfig   = 4 << 20 // bytes of a file
	matchAny    = "MatchAny"
)

// ParseConfig reads an AuthenticationConfiguration in YAML or JSON. It does not validate its contents. Fields that do not
// exist, duplicate fields, and values of the wrong type are errors, which name the source and the line and path of each field.
func ParseConfig(source string, data []byte) (*Config, error) {
	if len(data) > maxConfig {
		return nil, fmt.Errorf("%s: has %d bytes, want at most %d", source, len(data), maxConfig)
	}
	doc, err := document.Parse(source, data)
	if err != nil {
		return nil, err
	}
	var head metav1.TypeMeta
	versions := []string{configGroup + "/v1", configGroup + "/v1beta1", configGroup + "/v1alpha1"}
	switch err := yaml.Unmarshal(data, &head); {
	case err != nil || head.Kind != configKind:
		return nil, fmt.Errorf("%s: kind: must be %s, got %q", source, configKind, head.Kind)
	case !slices.Contains(versions, head.APIVersion):
		return nil, fmt.Errorf("%s: apiVersion: must be %s/v1, v1beta1 or v1alpha1, got %q", source, configGroup, head.APIVersion)
	}
	c := &Config{}
	if err := doc.Decode(c); err != nil {
		return nil, err
	}
	return c, nil
}

// compile validates the configuration and returns its issuers. Tokens of the disallowed issuers are not for this package.
func (c *Config) compile(disallowed []string) ([]*issuer, field.ErrorList) {
	var errs field.ErrorList
	root := field.NewPath("jwt")
	if len(c.JWT) > maxJWT {
		return nil, field.ErrorList{field.TooMany(root, len(c.JWT), maxJWT)}
	}
	var issuers []*issuer
	urls, discoveryURLs := map[string]bool{}, map[string]bool{}
	for i := range c.JWT {
		j, path := &c.JWT[i], root.Index(i)
		is, faults := j.compile(path, disallowed)
		errs = append(errs, faults...)
		issuers = append(issuers, is)
		if urls[j.Issuer.URL] {
			errs = append(errs, field.Duplicate(path.Child("issuer", "url"), j.Issuer.URL))
		}
		urls[j.Issuer.URL] = true
		if d := j.Issuer.DiscoveryURL; d != "" {
			if discoveryURLs[d] {
				errs = append(errs, field.Duplicate(path.Child("issuer", "discoveryURL"), d))
			}
			discoveryURLs[d] = true
		}
	}
	if a := c.Anonymous; a != nil && !a.Enabled && len(a.Conditions) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("anonymous", "conditions"), a.Conditions, "enabled should be set to true when conditions are defined"))
	}
	return issuers, errs
}

func (j *JWT) compile(path *field.Path, disallowed []string) (*issuer, field.ErrorList) {
	is := &issuer{config: j, required: map[string]string{}}
	pool, errs := j.Issuer.validate(path.Child("issuer"), disallowed)
	is.keys = newKeys(j.Issuer.URL, j.Issuer.DiscoveryURL, pool)
	compiler := &compiler{}
	errs = append(errs, is.compileClaimRules(compiler, path.Child("claimValidationRules"))...)
	errs = append(errs, is.compileMappings(compiler, path.Child("claimMappings"))...)
	errs = append(errs, is.compileUserRules(compiler, path.Child("userValidationRules"))...)
	return is, errs
}

func (c *IssuerConfig) validate(path *field.Path, disallowed []string) (*x509.CertPool, field.ErrorList) {
	var errs field.ErrorList
	at := path.Child("url")
	if c.URL == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		if slices.Contains(disallowed, c.URL) {
			errs = append(errs, field.Invalid(at, c.URL, fmt.Sprintf("URL must not overlap with disallowed issuers: %s", disallowed)))
		}
		errs = append(errs, validateURL(c.URL, at)...)
	}
	if at := path.Child("discoveryURL"); c.DiscoveryURL != "" {
		if c.URL != "" && strings.TrimRight(c.URL, "/") == strings.TrimRight(c.DiscoveryURL, "/") {
			errs = append(errs, field.Invalid(at, c.DiscoveryURL, "discoveryURL must be different from URL"))
		}
		errs = append(errs, validateURL(c.DiscoveryURL, at)...)
	}
	errs = append(errs, c.validateAudiences(path.Child("audiences"), path.Child("audienceMatchPolicy"))...)
	var pool *x509.CertPool
	if c.CertificateAuthority != "" {
		var err error
		if pool, err = poolOf([]byte(c.CertificateAuthority)); err != nil {
			errs = append(errs, field.Invalid(path.Child("certificateAuthority"), "<omitted>", err.Error()))
		}
	}
	if c.EgressSelectorType != "" {
		errs = append(errs, field.Invalid(path.Child("egressSelectorType"), c.EgressSelectorType, "egress selectors are not supported"))
	}
	return pool, errs
}

func validateURL(text string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Invalid(path, text, err.Error())}
	}
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(path, text, "URL scheme must be https"))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(path, text, "URL must not contain a username or password"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(path, text, "URL must not contain a query"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(path, text, "URL must not contain a fragment"))
	}
	return errs
}

func (c *IssuerConfig) validateAudiences(path, policy *field.Path) field.ErrorList {
	if len(c.Audiences) == 0 {
		return field.ErrorList{field.Required(path, fmt.Sprintf("at least one %s is required", path))}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, audience := range c.Audiences {
		if audience == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
		}
		if seen[audience] {
			errs = append(errs, field.Duplicate(path.Index(i), audience))
		}
		seen[audience] = true
	}
	switch {
	case len(c.Audiences) > 1 && c.AudienceMatchPolicy != matchAny:
		errs = append(errs, field.Invalid(policy, c.AudienceMatchPolicy, "audienceMatchPolicy must be MatchAny for multiple audiences"))
	case len(c.Audiences) == 1 && c.AudienceMatchPolicy != "" && c.AudienceMatchPolicy != matchAny:
		errs = append(errs, field.Invalid(policy, c.AudienceMatchPolicy, "audienceMatchPolicy must be empty or MatchAny for single audience"))
	}
	return errs
}

// poolOf returns the certificates of a file in PEM, of which there must be one at least.
func poolOf(data []byte) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), false
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(c)
		found = true
	}
	if !found {
		return nil, errors.New("data does not contain any valid RSA or ECDSA certificates")
	}
	return pool, nil
}

func (is *issuer) compileClaimRules(c *compiler, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	claims, expressions := map[string]bool{}, map[string]bool{}
	for i, rule := range is.config.ClaimValidationRules {
		path := path.Index(i)
		switch {
		case rule.Claim != "" && rule.Expression != "":
			errs = append(errs, field.Invalid(path, rule.Claim, "claim and expression can't both be set"))
		case rule.Claim == "" && rule.Expression == "":
			errs = append(errs, field.Required(path, "claim or expression is required"))
		case rule.Claim != "":
			if rule.Message != "" {
				errs = append(errs, field.Invalid(path.Child("message"), rule.Message, "may not be specified when claim is set"))
			}
			if claims[rule.Claim] {
				errs = append(errs, field.Duplicate(path.Child("claim"), rule.Claim))
			}
			claims[rule.Claim] = true
			is.required[rule.Claim] = rule.RequiredValue
		default:
			if rule.RequiredValue != "" {
				errs = append(errs, field.Invalid(path.Child("requiredValue"), rule.RequiredValue, "may not be specified when expression is set"))
			}
			if expressions[rule.Expression] {
				errs = append(errs, field.Duplicate(path.Child("expression"), rule.Expression))
				continue
			}
			expressions[rule.Expression] = true
			p, err := c.condition(claimsVariable, rule.Expression, path.Child("expression"))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			p.message = rule.Message
			is.claimRules = append(is.claimRules, p)
		}
	}
	return errs
}

func (is *issuer) compileMappings(c *compiler, path *field.Path) field.ErrorList {
	m := &is.config.ClaimMappings
	var errs field.ErrorList
	var faults field.ErrorList
	is.username, faults = c.prefixed(&m.Username, path.Child("username"), true)
	errs = append(errs, faults...)
	is.groups, faults = c.prefixed(&m.Groups, path.Child("groups"), false)
	errs = append(errs, faults...)
	switch at := path.Child("uid"); {
	case m.UID.Claim != "" && m.UID.Expression != "":
		errs = append(errs, field.Invalid(at, "", "claim and expression can't both be set"))
	case m.UID.Expression != "":
		var err *field.Error
		if is.uid, err = c.mapping(m.UID.Expression, at.Child("expression")); err != nil {
			errs = append(errs, err)
		}
	}
	keys := map[string]bool{}
	for i, e := range m.Extra {
		at := path.Child("extra").Index(i)
		errs = append(errs, validateExtraKey(e.Key, at.Child("key"))...)
		if keys[e.Key] {
			errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			continue
		}
		keys[e.Key] = true
		if e.ValueExpression == "" {
			errs = append(errs, field.Required(at.Child("valueExpression"), ""))
			continue
		}
		p, err := c.mapping(e.ValueExpression, at.Child("valueExpression"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.key = e.Key
		is.extra = append(is.extra, p)
	}
	if is.username != nil && is.username.uses("email") {
		all := append(slices.Concat(is.extra, is.claimRules), is.username)
		if !slices.ContainsFunc(all, func(p *program) bool { return p.uses("email_verified") }) {
			errs = append(errs, field.Invalid(path.Child("username", "expression"), m.Username.Expression,
				"claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"))
		}
	}
	return errs
}

func validateExtraKey(key string, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsDomainPrefixedPath(path, key)
	if key != strings.ToLower(key) {
		errs = append(errs, field.Invalid(path, key, "must be lowercase"))
	}
	if domain, _, ok := strings.Cut(key, "/"); ok {
		for _, reserved := range []string{"kubernetes.io", "k8s.io"} {
			if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
				errs = append(errs, field.Invalid(path, key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"))
			}
		}
	}
	return errs
}

func (is *issuer) compileUserRules(c *compiler, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, rule := range is.config.UserValidationRules {
		at := path.Index(i).Child("expression")
		if rule.Expression == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		if seen[rule.Expression] {
			errs = append(errs, field.Duplicate(at, rule.Expression))
			continue
		}
		seen[rule.Expression] = true
		p, err := c.condition(userVariable, rule.Expression, at)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.message = rule.Message
		is.userRules = append(is.userRules, p)
	}
	return errs
}

// prefixed compiles a mapping that is a claim or an expression. It returns nil for a claim.
func (c *compiler) prefixed(m *PrefixedMapping, path *field.Path, required bool) (*program, field.ErrorList) {
	var errs field.ErrorList
	switch {
	case m.Expression != "" && m.Claim != "":
		errs = append(errs, field.Invalid(path, "", "claim and expression can't both be set"))
	case m.Expression == "" && m.Claim == "" && required:
		errs = append(errs, field.Required(path, "claim or expression is required"))
	case m.Expression != "":
		if m.Prefix != nil {
			errs = append(errs, field.Invalid(path.Child("prefix"), *m.Prefix, "may not be specified when expression is set"))
		}
		p, err := c.mapping(m.Expression, path.Child("expression"))
		if err != nil {
			return nil, append(errs, err)
		}
		return p, errs
	case m.Claim != "" && m.Prefix == nil:
		errs = append(errs, field.Required(path.Child("prefix"), "prefix is required when claim is set. It can be set to an empty string to disable prefixing"))
	}
	return nil, errs
}
