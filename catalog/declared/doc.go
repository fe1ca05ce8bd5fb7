// Package declared checks objects against the rules that Kubernetes declares beside the fields of
// its types, in comments such as +k8s:maxItems=16: declarative validation (KEP-5073).
//
// Upstream's generator, validation-gen, turns these comments into Go; the result is in a package
// for each version of a group. `make generate` runs the generator in the version of k8s.io/api that
// go.mod requires, and must be repeated when that changes; a test compares the two.
//
// The declared rules are a small part of all rules. A kind has all the others by hand, in the
// package of its group, and [Merge] joins the results of both.
//
// A declared rule has a stage. [Validate] enforces stable and beta rules and drops alpha rules, as
// Kubernetes v1.37 does by default (the gate DeclarativeValidationBeta is on). For each alpha rule
// upstream's server has a rule by hand, and so has to have the kind here.
//
// Some rules depend on a feature gate. They have the defaults of v1.37.
package declared

//go:generate ../../.ci/generate
