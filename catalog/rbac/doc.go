// Package rbac describes the kinds of the group rbac.authorization.k8s.io, version v1: Role and
// ClusterRole, which list permissions, and RoleBinding and ClusterRoleBinding, which grant them to
// users, groups and service accounts.
//
// The reference of a binding to its role never changes. Whether a user may create a role or a
// binding depends on the user's own rights, and is not checked here.
package rbac
