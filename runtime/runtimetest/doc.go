// Package runtimetest is a conformance test of container runtimes: it checks the behaviour that a node agent relies on.
// Its tests use CRI v1 only, so that any runtime can be tested: pass the clients of its socket and an image made of
// cmd/sampan-demo to [Run].
//
// It also creates, and removes, the pods and files that such tests need: see [Kit].
package runtimetest
