// Package registry reads container images from registries that speak the OCI distribution protocol.
//
// A [Client] knows the configuration of hosts, and a [Repository] is one repository in a registry, which is read with one
// set of credentials. A Repository tries the configured mirrors in their order and then the registry itself.
//
//	G1  Credentials are sent to the configured hosts of a registry and to the token servers that these name, and never to
//	    the target of a redirect. They are in no error and no log line.
//	G2  Plain HTTP is used for loopback addresses that do not speak TLS, and for hosts that are configured with http://.
//	G3  What a host sends is bounded: documents by a limit, blobs by their announced size, pauses within a response by
//	    [Options.Stall].
//	G4  A blob is written in order and exactly once: after a broken connection the rest is requested (RFC 9110, Range).
//
// The content is not verified here: the caller compares digests.
package registry
