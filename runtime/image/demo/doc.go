// Package demo holds the built-in demo images, so that a first try needs no network: sampan.local/demo:v1 and :v2, two
// configurations of one layer with one static program (cmd/sampan-demo).
//
// The program is embedded under the build tag "embed", from demo.bin, which "make build" creates. Without the tag there
// are no built-in images, and [Program] reports that; [New] makes the images from any program.
package demo
