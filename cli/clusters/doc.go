// Package clusters is the part of the command line that deals with clusters of
// this machine: up, down, status, kubeconfig, serve and demo. All other verbs
// work on any cluster through a kubeconfig and are in package cli.
//
// A cluster runs in a process of its own: `up` starts this same program again
// with `serve` in the background, through package cluster/local. What serve runs
// is handed in, so that the command line does not link a cluster.
package clusters
