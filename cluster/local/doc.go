// Package local knows the clusters of this machine: what they are called, where
// their files are, whether they run, and how to start and stop them.
//
// A [Profile] derives everything that must not collide between two clusters on
// one host from the name of the cluster: directories, the bridge, the nftables
// table, the cgroup, the context in the kubeconfig. An [Instance] is what a
// running one has written down about itself.
//
// [Start] runs the program in the background and learns over a pipe when it is
// ready or why it will not be; [Stop] ends it and waits for its processes. Both
// wait on descriptors and poll nothing. The package does not know what runs
// inside: it is what the command line needs of a cluster, without linking one.
package local
