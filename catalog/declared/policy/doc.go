// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/policy/v1
// +k8s:validation-gen-scheme-registry=nil

// Package policy has the rules that the types of the group policy, version v1, declare; generated.
package policy
