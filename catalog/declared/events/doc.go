// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/events/v1
// +k8s:validation-gen-scheme-registry=nil

// Package events has the rules that the types of events.k8s.io, version v1, declare; generated.
package events
