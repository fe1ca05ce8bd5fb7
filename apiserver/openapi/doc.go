// Package openapi describes the served kinds in OpenAPI v3, for kubectl explain, for clients that
// check what they send, and for kubectl apply, which learns from it how lists are merged.
//
// There is one document per group version, and one in OpenAPI v2 of the models of all, which
// kubectl needs to check a List. Its schemas are made by reflection over the Go types: names and
// rules come from struct tags, texts from SwaggerDoc, names of models and special types from the
// methods that the types have for this. Its paths are derived from the catalog. Neither tags nor
// texts say how server-side apply merges lists and maps: marks.txt does, and a test keeps it equal
// to upstream's schema. Left out are enumerations, and defaults of fields other than keys of lists.
//
// The same models are the types by which server-side apply merges: see [Types].
//
// The documents are made when they are first requested, and kept compressed, a few tens of
// kilobytes each; until then they cost nothing. They are written, as JSON and as protobuf, from
// plain structs of this package: kube-openapi's types bring in gnostic's protobuf description of
// OpenAPI itself, whose registration every start would pay for.
package openapi
