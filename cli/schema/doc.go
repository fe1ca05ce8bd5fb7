// Package schema checks objects against what a server says about its kinds.
//
// A server describes each group and version in an OpenAPI v3 document. [Schemas]
// fetches the document of a kind when the first object of it is checked, keeps it for
// as long as the program runs and, if told where, in a file: documents are named by a
// hash of their contents, so that an old one is never taken for a new one.
//
// [Schemas.Check] finds fields that the kind does not have, values of the wrong type
// and values that are none of an enumeration, every one at once, with their paths;
// package resource knows where those stand in a file. It finds no more than that:
// which fields must be there depends on defaults that only the server knows. Where
// there is no schema (the server has none, or does not let this user read it) nothing
// is found, and the server's own validation is the judge.
package schema
