// Package resource turns the files and arguments of a command line into a stream of objects.
//
// Input comes from files, directories, glob patterns and URLs (YAML or JSON, several
// documents, Lists flattened), standard input, kustomizations, and arguments
// (TYPE/NAME, TYPE NAME…, TYPE with a selector). [Stream] yields one [Info] at a time and
// holds one document in memory: its memory does not grow with the input. An invalid
// document is an error in its place in the stream and does not stop the later ones.
//
// The following are held in memory as a whole: a YAML document, and so a List in YAML; a
// JSON value, but only one item of a List in JSON, unless the items have no apiVersion and
// kind and those of the List come after them; and the output of a kustomization. A document
// or item may be at most 256 MB.
//
// An Info records where its object was read: [Info.Position] returns the line and column
// of a field, and [Info.Fault] puts them in front of an error about it.
//
// [Mapper] maps kinds to resources and knows the names of a resource (plural, singular,
// short, with version and group). It requests as little of the server's discovery as
// possible and caches the responses for as long as the program runs.
//
// The package does not change objects on the server, and validates objects only as far as
// needed to send them: package schema and the server do the rest.
package resource
