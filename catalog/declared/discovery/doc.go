// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/discovery/v1
// +k8s:validation-gen-scheme-registry=nil

// Package discovery has the rules that the types of discovery.k8s.io, version v1, declare; generated.
package discovery
