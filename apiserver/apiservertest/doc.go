// Package apiservertest opens API servers for tests: the real one, with all kinds, on a store in
// memory that runs until the test ends.
//
// [Open] gives one whose test says what it has beyond that: by default there is no admission, no
// authentication and no kubelet. [OpenBare] gives one that takes incomplete objects. Both work in a
// bubble of testing/synctest.
//
// It is a test kit: only tests import it. Tests of parts that use package client get their server
// from package client/clienttest, which adds faults to a bare one.
package apiservertest
