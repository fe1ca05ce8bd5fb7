// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/networking/v1
// +k8s:validation-gen-scheme-registry=nil

// Package networking has the rules that the types of networking.k8s.io, version v1, declare; generated.
package networking
