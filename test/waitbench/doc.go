// Waitbench puts package wait beside the libraries that people use for the same, in one
// run on one machine:
//
//	cd test/waitbench && GOWORK=off go run .
//
// Its tests compile and run what wait/APIMACHINERY.md says to write in place of each name
// of apimachinery's package. It is a module of its own, so that nobody else links them.
package main
