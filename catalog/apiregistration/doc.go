// Package apiregistration describes the APIService, the kind of the group apiregistration.k8s.io, version v1: which server
// serves a version of an API group, this one or one behind a Service.
//
// Package aggregation of the API server acts on it.
package apiregistration
