// Package review describes the questions that everybody may ask about oneself: what
// may I do (SelfSubjectAccessReview and SelfSubjectRulesReview of
// authorization.k8s.io/v1), and who am I (SelfSubjectReview of
// authentication.k8s.io/v1). "kubectl auth can-i" and "kubectl auth whoami" ask them.
//
// Nothing of it is stored: posting the question brings the answer, which
// packages auth and rbac know.
package review
