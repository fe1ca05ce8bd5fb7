// Package discovery describes the EndpointSlice, kind of the group discovery.k8s.io, version v1: a
// part of the addresses behind a service.
//
// Addresses that mean another thing on every machine (loopback, link-local) are refused: a proxy
// that forwarded to them would make the local listeners of a node public.
package discovery
