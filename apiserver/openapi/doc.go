// Package openapi describes the served kinds in OpenAPI v3, for kubectl explain, for clients that
// check objects before they send them, and for kubectl apply, which learns from it how lists are merged.
//
// There is one document per group version, and one in OpenAPI v2 of all, for older clients and for
// kubectl, which needs it to check a List. Their schemas are made by reflection over the Go types: names and
// rules come from struct tags, texts from SwaggerDoc, names of models and special types from the
// methods that the types have for this. Their paths are derived from the catalog. Neither tags nor
// texts say how server-side apply merges lists and maps, nor the values of enumerations: marks.txt
// does, and a test keeps it equal to upstream's.
//
// The same models are the types by which server-side apply merges: see [Types].
//
// The documents are made when they are first requested, and kept compressed, a few tens of
// kilobytes each; until then they cost nothing. They are written, as JSON and as protobuf, from
// plain structs of this package: kube-openapi's types bring in gnostic's protobuf description of
// OpenAPI itself, whose registration every start would pay for.
package openapi
