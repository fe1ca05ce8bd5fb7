// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/authentication/v1
// +k8s:validation-gen-scheme-registry=nil

// Package authentication has the rules that the types of authentication.k8s.io, version v1, declare; generated.
package authentication
