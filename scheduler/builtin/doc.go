// Package builtin holds the plug-ins of a scheduler that nobody configured, each
// in a file of its own, and [Default], which puts them in order.
//
// Names, texts and numbers are those of upstream's plug-ins, so that users and
// tools that read "0/3 nodes are available: …" need not learn new ones.
package builtin
