// Package clusters has the commands for clusters on this machine: up, down, status,
// kubeconfig, serve and demo. All other commands work with any cluster of the kubeconfig.
//
// A cluster runs in its own process: up starts this program again with serve in the
// background, through package cluster/local. The function that serve runs is passed in, so
// that the command line does not link a cluster.
package clusters
