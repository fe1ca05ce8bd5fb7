// Package definition reads CustomResourceDefinitions: which resource one of them serves
// under a name that somebody uses for its kind.
//
// It takes definitions as they come from a server that this program has no Go types for,
// and says nothing about whether they are established.
package definition
