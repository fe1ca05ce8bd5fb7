package auth

import "slices"

import "context"

// A User is the user that a request was authenticated as. Requests share it: it must not be changed
// after it was returned.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string // what the credential says beside the name, by the keys that Kubernetes uses
}

// Names that authentication gives and policies speak of, as Kubernetes has them.
const (
	Anonymous            = "system:anonymous"
	GroupUnauthenticated = "system:unauthenticated"
	GroupAuthenticated   = "system:authenticated"
	GroupMasters         = "system:masters"
	GroupNodes           = "system:nodes"
	GroupServiceAccounts = "system:serviceaccounts"

	nodePrefix           = "system:node:"
	serviceAccountPrefix = "system:serviceaccount:"
)

// In reports whether u belongs to the group.
func (u *User) In(group string) bool {
	return slices.Contains(u.Groups, group)
}

// Node returns the name of the node that u is the agent of: its name is
// "system:node:NAME" and it belongs to the group system:nodes.
func (u *User) Node() (name string, ok bool) {
	if len(u.Name) <= len(nodePrefix) || u.Name[:len(nodePrefix)] != nodePrefix || !u.In(GroupNodes) {
		return "", false
	}
	return u.Name[len(nodePrefix):], true
}

// ServiceAccountUser returns the name of the user that a service account is.
func ServiceAccountUser(namespace, name string) string {
	return serviceAccountPrefix + namespace + ":" + name
}

type userKey struct{}

// WithUser returns a context that carries u to what works for it.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom returns the user that the context carries.
func UserFrom(ctx context.Context) (*User, bool) {
	u, ok := ctx.Value(userKey{}).(*User)
	return u, ok
}
