// Package client is the client of the API server that every part uses.
//
// [Interface] has two implementations: [REST] speaks HTTPS to any Kubernetes API server, and the
// API server of this program implements the interface itself for parts in the same process, which
// then share its decoded objects and encode nothing. Both behave the same; authorization holds for
// both.
//
// [Resource] ties a Go type to a resource and gives typed calls over either. [Recorder] writes
// Events about objects without blocking the caller. A local copy of objects, kept current by a
// watch, is in package cache; an API server for tests in package clienttest.
//
//	C1  Objects that are returned are shared and must not be changed; DeepCopy to
//	    change one. Objects that are passed in must not be changed afterwards.
//	C2  Errors are Kubernetes API status errors wherever a server answered.
//	C3  A watch ends with an error or with its context, never silently. A server
//	    that cannot go on from the requested revision is IsResourceExpired or IsGone.
package client
