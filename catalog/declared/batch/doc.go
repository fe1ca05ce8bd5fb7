// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/batch/v1
// +k8s:validation-gen-scheme-registry=nil

// Package batch has the rules that the types of the group batch, version v1, declare; generated.
package batch
