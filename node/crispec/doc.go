// Package crispec translates a pod into the configuration of the container runtime interface: the configuration of its
// sandbox and of each attempt at a container.
//
// Everything here is a function of values. The caller passes in the values from elsewhere (ConfigMaps, Secrets,
// services, the host's resolver configuration, the paths of volumes), and a missing value is an error for the user.
//
// The package does no I/O.
package crispec
