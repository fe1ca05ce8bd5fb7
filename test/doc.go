// Package test tests the program as its users use it: with an unmodified kubectl
// and client-go, from the outside. It is a module of its own so that the product
// never links these.
//
// The service proxy is tried on a network of hosts (package hosts): what is to become of each connection is
// in services_model_test.go, which shares nothing with the proxy. SAMPAN_SERVICES_TIMES makes the runs under
// load so many times longer.
//
// The stories are scripts in testdata/script. They run in network, mount and process
// namespaces of their own; see TestMain.
package test
