// Package servers pins the servers of upstream's Kubernetes, each with the versions
// of modules that upstream built it with. It is a module of its own, because these
// differ from ours. `.ci/upstream` builds them.
package servers
