// Package client is how every part sees the cluster.
//
// [Interface] has two implementations: [REST] speaks HTTPS to any Kubernetes API
// server, and the API server of this program fits the interface itself for
// parts in the same process, which then share its decoded objects and encode
// nothing. A part cannot tell which one it was given; authorization holds for
// both.
//
// [Resource] ties a Go type to a resource and gives typed calls over either.
// [Recorder] writes Events about objects without holding anybody up. A local copy of
// objects, kept current by a watch, is in package cache; a model of an API server for
// tests in package clienttest.
//
//	C1  Objects that come out are shared and must not be changed; DeepCopy to
//	    change one. Objects that go in must not be changed afterwards.
//	C2  Errors are Kubernetes API status errors wherever a server answered.
//	C3  A watch ends with an error or with its context, never silently. A server
//	    that cannot go on from the asked revision is IsResourceExpired or IsGone.
package client
