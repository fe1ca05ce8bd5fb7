// Package upstream tests the program against upstream's servers: kube-apiserver on
// etcd, kube-controller-manager, and a scheduler, upstream's or ours. Nodes are our
// node agents on simulated runtimes, each a client of the server like any kubelet.
//
// [Start] brings up such a cluster. The sessions are those of ../testdata/script
// that need no node with real containers, and some of testdata/script that say
// what only an upstream server can (aggregated servers, ownership of
// fields, servers that are restarted). A server listens on loopback only, works in
// a directory of the test and ends with it.
//
// TestAnswersAreTheSame needs no more than the API servers: it sends the same requests to
// upstream's and to ours, and compares the answers.
//
// It is a module of its own and no part of `make test`: `make upstream` builds the
// servers from their modules, which takes a quarter of an hour, and runs it.
package upstream
