// Package policies checks and changes writes by the stored admission policies: ValidatingAdmissionPolicy and
// MutatingAdmissionPolicy with their bindings.
//
// A [Set] has the policies in compiled form. It is loaded before the server starts, follows the store afterwards, and
// has every change before the request that made it is answered. The plug-ins [Validating] and [Mutating] read its current
// state without a lock; a cluster without policies pays one atomic load for each write.
//
// Policies are used in the order of their names, and their bindings too. What is wrong with a policy's configuration, such as
// a paramKind that is not served, counts by its failure policy. Policies, bindings and webhook configurations
// themselves are exempt, so that an administrator can always repair them.
package policies
