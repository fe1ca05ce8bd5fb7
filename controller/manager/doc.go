// Package manager makes the controllers of a cluster: it has the table of all of them, under the names that upstream's
// kube-controller-manager has, and the choice among them with --controllers. Package cluster runs them beside the API server in
// the same process, package controller/standalone against any server.
package manager
