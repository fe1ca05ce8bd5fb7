// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/authorization/v1
// +k8s:validation-gen-scheme-registry=nil

// Package authorization has the rules that the types of authorization.k8s.io, version v1, declare; generated.
package authorization
