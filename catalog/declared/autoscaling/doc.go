// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/autoscaling/v1
// +k8s:validation-gen-scheme-registry=nil

// Package autoscaling has the rules that the types of the group autoscaling, version v1, declare; generated.
package autoscaling
