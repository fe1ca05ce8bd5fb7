// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/flowcontrol/v1
// +k8s:validation-gen-scheme-registry=nil

// Package flowcontrol has the rules that the types of flowcontrol.apiserver.k8s.io, version v1, declare; generated.
package flowcontrol
