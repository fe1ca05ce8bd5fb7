// Package core describes the kinds of the core group, version v1: namespaces,
// nodes, pods, services, volumes, config maps and others. One kind is one file; [Kinds] is
// the list.
//
// Everything here is a pure function of objects, as package catalog asks for.
// Which address a service gets, whether a namespace exists and which token a pod
// is given is admission.
package core
