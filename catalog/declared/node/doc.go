// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/node/v1
// +k8s:validation-gen-scheme-registry=nil

// Package node has the rules that the types of node.k8s.io, version v1, declare; generated.
package node
