// Package local manages the clusters of this machine: their names, files, settings and
// processes, and how to start and stop them.
//
// A [Profile] derives everything that two clusters on one host must not share from
// the name of the cluster: directories, the bridge, the nftables table, the cgroup,
// the context in the kubeconfig. An [Instance] is the state file of a running cluster.
//
// [Start] runs the program in the background and is notified over a pipe when it is
// ready or has failed; [End] ends a process and waits until it is gone. On Linux both wait on
// file descriptors and do not poll. The package is the command line's view of a cluster,
// without linking one.
package local
