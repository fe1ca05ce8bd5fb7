// Package oidc authenticates users by JSON Web Tokens of other issuers, such as OpenID Connect providers.
//
// Issuers are configured by a file, AuthenticationConfiguration of apiserver.config.k8s.io/v1, which is read again when it
// changes, or by the flags --oidc-*. Expressions in CEL map the claims of a token to a user and check both.
//
// The keys of an issuer are fetched when its first token comes, and again when a token names an unknown key, at most every
// ten seconds, and at least every hour while tokens come. An issuer that does not answer delays the requests with its own
// tokens only.
package oidc
