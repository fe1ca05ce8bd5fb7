// Package rbac authorizes requests by role-based access control.
//
// A [Policy] is an index of RBAC objects in the types of rbac.authorization.k8s.io/v1: roles, cluster
// roles and their bindings. The owner of a watch of these objects keeps it up to date. [Fixed] returns
// the objects of a server without stored ones: the least rights that the components of a cluster need to
// work, under the names that Kubernetes gives them. Package bootstrappolicy has the objects of a server
// that stores them.
//
// A [Grantor] checks writes of these objects: a user can grant only what the user has. [Aggregate]
// returns the rules of a cluster role that collects those of others.
//
// Rules cannot express "its own pods". [Nodes] does: the agent of a node reads and writes its Node,
// its Lease and its pods, and reads the secrets, config maps and service accounts that its pods
// name, and no others.
//
// An [Authorizer] allows what one of them allows. Package auth finds the user.
package rbac
