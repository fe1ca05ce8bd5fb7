// Package criclient is the client of a container runtime that serves CRI v1.
//
// It declares the interface [Runtime] by which the node agent works with a container runtime, and implements it for a unix socket
// ([Dial]). It reads the state of a pod in the form of package lifecycle ([Look]), finds changes by polling if the runtime has no
// stream of events, counts and measures calls under the names of upstream's kubelet, and removes the pods of a cluster from a
// runtime that other programs use, too ([CleanForeign]).
//
// It owns the connection. It decides nothing about pods and keeps no state of them.
package criclient
