// Package catalog is the table of the kinds that the API server serves.
//
// A [Kind] is everything that there is to know about one kind: its names and
// scope, how its objects are defaulted, prepared and checked, its columns, its
// selectable fields and its subresources. Routes, discovery, OpenAPI, tables,
// storage keys and the names that authorization speaks of are derived from the
// table. To add a kind is a file in catalog/<group> and a line in the Kinds of
// that group. What acts on objects of the kind is elsewhere: a controller, its
// role in package bootstrappolicy, a form in the command line.
//
// Everything in a Kind is a pure function of objects. What needs more than the
// object (does the namespace exist, which addresses are free, who asks) is
// admission, in package apiserver.
//
// Defaults and rules follow the Kubernetes API reference, v1.37.
package catalog
