// Package suite pins upstream's end-to-end suite and the programs that it needs, each with the versions of modules that
// upstream built it with. It is a module of its own, because these differ from ours. `.ci/conformance` builds them.
package suite
