// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/admissionregistration/v1
// +k8s:validation-gen-scheme-registry=nil

// Package admissionregistration has the rules that the types of admissionregistration.k8s.io, version v1, declare; generated.
package admissionregistration
