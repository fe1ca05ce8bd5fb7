// Package auth authenticates requests and issues tokens of service accounts.
//
// There are two kinds of credentials: client certificates that the cluster's authority signed (the
// common name is the user, the organisations are the groups), and bearer tokens of service
// accounts. A request without credentials is the user system:anonymous, who may do very little. A
// request with a bad credential is refused, even where an anonymous one would be accepted, so that
// an expired credential is not mistaken for missing rights.
//
// Tokens are signed, expire, and are bound: to their service account, and to the pod, node or
// secret that they were made for. When one of these is deleted, or replaced by another object of
// the same name, the token becomes invalid at once. Every use checks that against the objects in
// memory; the server keeps no record of the tokens that it issued.
//
// Package rbac decides what a user may do.
package auth
