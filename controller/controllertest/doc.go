// Package controllertest runs controllers in a test: in a bubble whose time is free, on a
// server that keeps objects and nothing else, with pods that do what the test says.
//
// It is a test kit: only tests import it.
package controllertest
