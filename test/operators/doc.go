// Package operators runs the operators of other projects on the program, as their users do: built from their modules,
// installed with their own manifests, as pods with their own service accounts on a node with real containers.
//
// Each file of testdata is a session with one operator. A session gets a cluster with one real node, in network and
// mount namespaces of the test program, and the directory of each module in a variable. Images are made from the
// programs in bin/operators; the session imports them under the names that the manifests use, because the cluster has
// no way to a registry.
//
// The modules certmanager, prometheus, rollouts and clusterapi pin an operator each, and promserver the Prometheus
// that its operator runs, with the versions of modules that their projects built them with. Nothing here is part of
// `make test`: `make upstream` builds the operators and runs the sessions.
package operators
