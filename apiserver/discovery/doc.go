// Package discovery serves the discovery documents: the server's version, its groups and versions,
// and the resources in each.
//
// Everything is derived from a snapshot of the catalog, so each document is made and encoded when
// it is first requested, and kept as bytes until the catalog changes. There are two forms. The old one is a
// document per group version, in JSON, YAML or protobuf. The aggregated one
// (apidiscovery.k8s.io/v2, JSON) is everything below /api and everything below /apis in one
// document each; clients that accept it get it, which saves kubectl a round trip per group.
//
// Package openapi describes the fields of the resources.
package discovery
