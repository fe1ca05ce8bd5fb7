// Package resource turns what a user typed into a stream of objects.
//
// Input comes from files (YAML or JSON, several documents, Lists flattened),
// standard input, and arguments (TYPE/NAME, TYPE NAME…, TYPE with a selector).
// [Stream] yields one [Info] after the other and holds one document at a time, so
// a large input needs little memory. A document that cannot be read is an error
// in its place in the stream and does not hide the ones after it.
//
// [Mapper] knows which resource serves a kind and what a type's other names are
// (plural, singular, short, with version and group); it asks the server's
// discovery for as little as the question needs and remembers the answers for as
// long as the program runs.
//
// The package changes nothing on the server, and does not validate objects beyond
// what it needs to know where they go: the server does that better.
package resource
