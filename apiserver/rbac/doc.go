// Package rbac decides who may do what.
//
// A [Policy] is an index over RBAC objects in the types of rbac.authorization.k8s.io/v1:
// roles, cluster roles and their bindings, by subject. It does not change and
// deciding is a pure function, so that whoever keeps RBAC objects makes
// a new Policy after a change and hands it over. [Fixed] is the policy that is built
// in: the least rights that the components of a cluster need to work, under the names that
// Kubernetes gives them.
//
// Rules cannot say "its own pods". That is [Nodes]: the agent of a node
// reads and writes its Node, its Lease and its pods, and reads the secrets, config maps and
// service accounts that its pods name, and no others.
//
// An [Authorizer] asks both. Who the user is was found out by package auth.
package rbac
