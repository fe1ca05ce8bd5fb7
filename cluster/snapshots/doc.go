// Package snapshots makes snapshots of a running cluster, and clusters from snapshots.
//
// [Source] serves the state of a cluster as a stream of package store/snapshot. The package owns the path of
// that stream and the form of Secrets in it. It does not run clusters, choose their settings or know the command line.
package snapshots
