// Package rbac authorizes requests by role-based access control.
//
// A [Policy] is an index of RBAC objects in the types of rbac.authorization.k8s.io/v1: roles, cluster
// roles and their bindings. Package follow keeps it equal to the stored objects, and package
// bootstrappolicy has the objects that every cluster starts with.
//
// A [Grantor] checks writes of these objects: a user can grant only what the user has. The rules of
// cluster roles that collect rules of others are written by a controller.
//
// An [Authorizer] asks the policy, and gives the agent of a node rights that rules cannot express: it
// reads and writes its Node, its Lease and its pods, and reads the secrets, config maps and service
// accounts that its pods name, and no others. Package auth finds the user.
package rbac
