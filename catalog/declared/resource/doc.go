// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/resource/v1
// +k8s:validation-gen-scheme-registry=nil

// Package resource has the rules that the types of resource.k8s.io, version v1, declare; generated.
package resource
