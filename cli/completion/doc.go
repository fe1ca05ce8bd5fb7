// Package completion completes command lines for shells: types and names of objects, namespaces, contexts of the kubeconfig,
// clusters of this machine, conditions, containers, and the words that flags accept.
package completion
