// Package plugintest is the test kit for scheduler plug-ins.
//
// [Laws] tests on random clusters that a plug-in follows the laws of package plugin (plugin-P1 to plugin-P6), and that its
// hints do not miss an event. [Play] plays stories: text files with a cluster, pods, and the decisions about them. [Node],
// [Pod] and [Object] make objects from short texts.
//
// It is a test kit: only tests and kits import it.
package plugintest
