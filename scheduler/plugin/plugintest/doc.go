// Package plugintest is the kit for scheduler plug-ins.
//
// [Laws] checks on random clusters that a plug-in keeps what package plugin asks of it (plugin-P1 to plugin-P6, and
// that its hints miss nothing). [Play] plays stories: text files with a cluster, pods, and what
// came of them. [Node], [Pod] and [Object] make objects from words, for tables.
//
// It is a test kit: only tests and kits import it.
package plugintest
