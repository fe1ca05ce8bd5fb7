// Package runtimetest checks what a node agent relies on in a container runtime. Its
// tests speak CRI v1 and nothing else, so that any runtime can be tested: give [Run]
// the clients of its socket and an image made of cmd/sampan-demo.
//
// It also starts, and looks after, what such tests need: see [Kit].
package runtimetest
