// Package rbac authorizes requests by role-based access control.
//
// A [Policy] is an index over RBAC objects in the types of rbac.authorization.k8s.io/v1: roles,
// cluster roles and their bindings, by subject. It does not change and deciding is a pure function,
// so the owner of the RBAC objects makes a new Policy after a change and passes it on. [Fixed] is
// the policy that is built in: the least rights that the components of a cluster need to work,
// under the names that Kubernetes gives them.
//
// Rules cannot express "its own pods". [Nodes] does: the agent of a node reads and writes its Node,
// its Lease and its pods, and reads the secrets, config maps and service accounts that its pods
// name, and no others.
//
// An [Authorizer] allows what one of them allows. Package auth finds the user.
package rbac
