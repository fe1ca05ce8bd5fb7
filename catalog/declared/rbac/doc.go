// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/rbac/v1
// +k8s:validation-gen-scheme-registry=nil

// Package rbac has the rules that the types of rbac.authorization.k8s.io, version v1, declare; generated.
package rbac
