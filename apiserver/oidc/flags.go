package oidc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Flags are the flags --oidc-* of kube-apiserver. They describe one issuer.
type Flags struct {
	IssuerURL      string   `json:"issuerURL,omitempty"`
	ClientID       string   `json:"clientID,omitempty"`
	CAFile         string   `json:"caFile,omitempty"`
	UsernameClaim  string   `json:"usernameClaim,omitempty"` // empty means sub
	UsernamePrefix string   `json:"usernamePrefix,omitempty"`
	GroupsClaim    string   `json:"groupsClaim,omitempty"`
	GroupsPrefix   string   `json:"groupsPrefix,omitempty"`
	SigningAlgs    []string `json:"signingAlgs,omitempty"`    // empty means RS256
	RequiredClaims []string `json:"requiredClaims,omitempty"` // KEY=VALUE
}

// IsZero reports whether no flag was given.
func (f *Flags) IsZero() bool {
	return f.IssuerURL+f.ClientID+f.CAFile+f.UsernameClaim+f.UsernamePrefix+f.GroupsClaim+f.GroupsPrefix == "" && len(f.SigningAlgs) == 0 && len(f.RequiredClaims) == 0
}

// Config returns the configuration that the flags stand for. It reads the file of the authority. The error names the flag
// that is wrong.
func (f *Flags) Config() (*Config, error) {
	if f.IsZero() {
		return &Config{}, nil
	}
	if f.IssuerURL == "" || f.ClientID == "" {
		return nil, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	}
	j := JWT{Issuer: IssuerConfig{URL: f.IssuerURL, Audiences: []string{f.ClientID}}, Algorithms: f.SigningAlgs}
	if len(j.Algorithms) == 0 {
		j.Algorithms = []string{"RS256"}
	}
	for _, a := range j.Algorithms {
		if !slices.Contains(Algorithms(), a) {
			return nil, fmt.Errorf("--oidc-signing-algs: unsupported signing alg: %q, want %s", a, strings.Join(Algorithms(), ", "))
		}
	}
	claim, prefix := f.UsernameClaim, f.UsernamePrefix
	if claim == "" {
		claim = "sub"
	}
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && claim != emailClaim:
		prefix = f.IssuerURL + "#"
	}
	j.ClaimMappings.Username = PrefixedMapping{Claim: claim, Prefix: &prefix}
	if f.GroupsClaim != "" {
		j.ClaimMappings.Groups = PrefixedMapping{Claim: f.GroupsClaim, Prefix: &f.GroupsPrefix}
	}
	if f.CAFile != "" {
		data, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		j.Issuer.CertificateAuthority = string(data)
	}
	for _, required := range f.RequiredClaims {
		key, value, ok := strings.Cut(required, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--oidc-required-claim: must be KEY=VALUE, got %q", required)
		}
		j.ClaimValidationRules = append(j.ClaimValidationRules, ClaimRule{Claim: key, RequiredValue: value})
	}
	return &Config{JWT: []JWT{j}}, nil
}
