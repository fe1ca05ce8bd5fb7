// Command sampan is a whole Kubernetes cluster in one program, and its command line.
//
// It only assembles other packages: cli is the command line, cluster is the cluster, and
// cli/clusters has sampan up and the other commands for clusters of this machine. Built
// with the tag embed, as `make build` does, it contains the container runtime; otherwise
// it uses the file sampan-runtime in its own directory.
package main
