// Package standalone runs the service proxy of one node as a program of its own, against any
// Kubernetes API server: `sampan proxy`. Flags have the names of kube-proxy's.
//
// What it makes in the kernel is in tables and on a link of its own, and goes when it is told to
// stop. After a crash the next one takes that over, and [Cleanup] removes it.
package standalone
