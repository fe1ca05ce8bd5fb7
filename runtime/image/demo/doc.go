// Package demo holds the images that come with the program, so that a first try
// needs no network: sampan.local/demo:v1 and :v2, two configurations of one layer
// with one static program (cmd/sampan-demo).
//
// The program is embedded under the build tag "embed", from demo.bin, which
// "make build" makes. Without the tag there are no built-in images, and [Program]
// says so; [Archive] makes them of any program.
package demo
