// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/certificates/v1
// +k8s:validation-gen-scheme-registry=nil

// Package certificates has the rules that the types of certificates.k8s.io, version v1, declare; generated.
package certificates
