// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/core/v1
// +k8s:validation-gen-scheme-registry=nil

// Package core has the rules that the types of the core group, version v1, declare; generated.
package core
