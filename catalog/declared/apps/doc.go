// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/apps/v1
// +k8s:validation-gen-scheme-registry=nil

// Package apps has the rules that the types of the group apps, version v1, declare; generated.
package apps
