// Package extender asks HTTP servers for their say in scheduling decisions: the extenders of
// KubeSchedulerConfiguration, with the wire format of Kubernetes' extender API (v1).
//
//	X1  A request takes no longer than the extender's timeout, and no more than 64 MiB of an answer are read.
//	X2  TLS is verified unless the configuration says otherwise; the scheduler shows its client certificate
//	    if it was given one. Redirects are not followed.
//	X3  An answer that makes no sense (a node that was not asked about, a score out of range) is
//	    an error, and changes nothing.
package extender
