// Package auth finds out who sends a request.
//
// Two credentials are known: client certificates that the cluster's authority
// signed (the common name is the user, the organisations are the groups), and
// bearer tokens of service accounts, which package auth also issues. A request
// without credentials is the user system:anonymous, who may do very little; a
// request with a bad credential is refused, even where an anonymous one would be
// let through, so that nobody mistakes an expired credential for missing rights.
//
// Tokens are signed, expire, and are bound: to their service account, and
// to the pod, node or secret that they were made for. When one of these is
// deleted, or replaced by another object of the same name, the token is worthless
// from that moment. That is checked on every use against the objects in
// memory; nothing is kept about a token that was issued.
//
// What a user may do is decided in package rbac.
package auth
