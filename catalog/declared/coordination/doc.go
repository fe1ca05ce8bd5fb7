// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/coordination/v1
// +k8s:validation-gen-scheme-registry=nil

// Package coordination has the rules that the types of coordination.k8s.io, version v1, declare; generated.
package coordination
