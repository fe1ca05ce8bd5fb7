// Package review describes the reviews that every user may create about their own rights
// (SelfSubjectAccessReview and SelfSubjectRulesReview of authorization.k8s.io/v1) and identity
// (SelfSubjectReview of authentication.k8s.io/v1). "kubectl auth can-i" and "kubectl auth whoami"
// use them.
//
// Reviews are not stored: the answer to the creation has the result, from packages auth and rbac.
package review
