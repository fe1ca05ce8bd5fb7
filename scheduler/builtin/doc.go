// Package builtin holds the plug-ins that a scheduler has without a configuration file, one in each file, and
// [Default], which puts them in order.
//
// Names, messages and scores are the same as those of upstream's plug-ins, so that users and tools can read
// "0/3 nodes are available: …" as they are used to.
package builtin
