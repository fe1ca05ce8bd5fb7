// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/storage/v1
// +k8s:validation-gen-scheme-registry=nil

// Package storage has the rules that the types of storage.k8s.io, version v1, declare; generated.
package storage
