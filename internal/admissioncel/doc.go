// Package admissioncel compiles and evaluates the CEL expressions of admission: the match conditions of
// webhooks, and the expressions of ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
//
// A [Compiler] has the variables that Kubernetes v1.37 declares for them, and what a policy names in
// spec.variables. It makes a [Program] of each expression; programs are immutable and may be used by many
// goroutines. An [Evaluation] runs programs over the [Values] of one request, and stops when its budget is
// spent. The cost of a single program is limited as well.
//
// Typed Go objects are read in place, without a conversion to JSON.
package admissioncel
