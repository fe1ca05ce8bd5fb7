// Package discovery describes the EndpointSlice, kind of the group
// discovery.k8s.io, version v1: a part of the addresses behind a service.
package discovery
