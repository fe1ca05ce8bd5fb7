// Package schema checks objects against the OpenAPI documents of a server.
//
// A server describes each group and version in an OpenAPI v3 document. [Schemas]
// fetches the document of a kind when the first object of it is checked, and keeps it
// in memory and, if a directory is given, in a file. Files are named by a hash of the
// document, so that an old document is never used for a new one.
//
// [Schemas.Check] returns all unknown fields, values of the wrong type and values that
// are not in an enumeration, with their paths; package resource maps the paths to
// positions in a file. It does not check which fields are required: that depends on
// defaults that only the server knows. Without a schema (the server has none, or does
// not let this user read it) it returns no errors and leaves validation to the server.
package schema
