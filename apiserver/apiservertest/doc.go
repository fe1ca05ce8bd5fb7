// Package apiservertest opens API servers for tests: the real one, with all kinds, on a store in
// memory that runs until the test ends.
//
// The test says what the server has beyond that: by default there is no admission, no
// authentication and no kubelet.
//
// It is a test kit: only tests import it. Tests of clients that need no real server use package
// client/clienttest, whose model keeps the same rules and is faster.
package apiservertest
