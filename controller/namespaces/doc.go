// Package namespaces holds the controllers of namespaces: one deletes the objects in a namespace that is being deleted,
// one gives each namespace its ServiceAccount "default", and one the ConfigMap with the root certificate.
//
//	namespaces-N1  The cache does not decide that a namespace is empty, the server does; and a deletion has the UID of
//	               the object as a precondition.
package namespaces
