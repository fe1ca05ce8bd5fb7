// Package resource turns what a user typed into a stream of objects.
//
// Input comes from files, directories, patterns and addresses (YAML or JSON, several
// documents, Lists flattened), standard input, kustomizations, and arguments
// (TYPE/NAME, TYPE NAME…, TYPE with a selector). [Stream] yields one [Info] after the
// other and holds one document at a time: its memory does not grow with the input. A
// document that cannot be read is an error in its place in the stream and does not
// hide the ones after it.
//
// What is held whole: one YAML document, so also a List in YAML; one JSON value, but
// of a List in JSON one item, unless its items do not say what they are and the List
// says it behind them; and all that a kustomization makes. No document or item may be
// larger than 256 MB.
//
// An Info knows where its object was read: [Info.Position] finds the line and column
// of a field, and [Info.Fault] names them in front of what a server says about it.
//
// [Mapper] knows which resource serves a kind and what a type's other names are
// (plural, singular, short, with version and group); it asks the server's
// discovery for as little as the question needs and remembers the answers for as
// long as the program runs.
//
// The package changes nothing on the server, and does not validate objects beyond
// what it needs to know where they go: package schema and the server do that.
package resource
