// Package standalone runs the service proxy of one node as a separate program, `sampan proxy`,
// against any Kubernetes API server. Flags have the names of kube-proxy's.
//
// Its rules and addresses are in separate tables and on a separate link, and it removes them when
// it is stopped. After a crash the next process takes them over, and [Cleanup] removes them.
package standalone
