// Package test tests the program as its users use it: with an unmodified kubectl
// and client-go, from the outside. It is a module of its own so that the product
// never links these.
//
// The stories are scripts in testdata/script. They run in network, mount and process
// namespaces of their own; see TestMain.
package test
