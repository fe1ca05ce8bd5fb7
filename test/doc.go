// Package test has the end-to-end tests, which run the program with an unmodified kubectl
// and client-go. It is a separate module so that the product never links these.
//
// The tests of the service proxy run on a network of hosts (package hosts). The expected
// result of each connection is computed in services_model_test.go, which shares no code
// with the proxy. SAMPAN_SERVICES_TIMES multiplies the length of the runs under load.
//
// The stories are scripts in testdata/script, a directory for each group: `go test -run TestScripts/GROUP/NAME` runs one.
// The tests run in network, mount and process namespaces of their own; see TestMain.
package test
