// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/autoscaling/v2
// +k8s:validation-gen-scheme-registry=nil

// Package autoscaling2 has the rules that the types of the group autoscaling, version v2, declare; generated.
package autoscaling2
