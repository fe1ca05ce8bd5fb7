// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/storagemigration/v1
// +k8s:validation-gen-scheme-registry=nil

// Package storagemigration has the rules that the types of storagemigration.k8s.io, version v1, declare; generated.
package storagemigration
