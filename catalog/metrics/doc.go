// Package metrics describes the kinds of the group metrics.k8s.io, version v1beta1: what pods and nodes use of CPU and
// memory. They are computed when they are read.
package metrics
