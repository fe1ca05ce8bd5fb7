// Package apiextensions describes the CustomResourceDefinition, kind of the group apiextensions.k8s.io, version v1: the
// name, the schema and the versions of a resource that a user adds to the API. Package custom makes a kind of one.
package apiextensions
