// Package networking describes the kinds of the group networking.k8s.io, version v1: NetworkPolicy,
// Ingress, IngressClass, and ServiceCIDR and IPAddress, from which services get their addresses.
//
// Only the objects are here. No part of the program enforces policies or serves ingresses.
package networking
