// Package extender calls scheduler extenders: HTTP servers that KubeSchedulerConfiguration names, with the wire format of
// Kubernetes' extender API (v1).
//
//	extender-X1  A request takes no longer than the timeout of the extender, and no more than 64 MiB of a response are
//	             read.
//	extender-X2  TLS certificates are verified unless the configuration says otherwise. The scheduler uses its client
//	             certificate if it has one. Redirects are not followed.
//	extender-X3  An invalid response (a node that was not in the request, a score out of range) is an error and has no
//	             other effect.
package extender
