// Package crispec says in the words of the container runtime interface what a pod
// asks for: the configuration of its sandbox and of each attempt at a container.
//
// Everything here is a function of values. What has to be looked up (config maps,
// secrets, services, the host's resolver configuration, where volumes lie) is
// handed in, and what is missing comes back as an error that a user can read.
//
// It makes no file and talks to nobody.
package crispec
