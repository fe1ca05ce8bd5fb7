// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/scheduling/v1
// +k8s:validation-gen-scheme-registry=nil

// Package scheduling has the rules that the types of scheduling.k8s.io, version v1, declare; generated.
package scheduling
