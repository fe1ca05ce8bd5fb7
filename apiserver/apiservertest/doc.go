// Package apiservertest opens API servers for tests: the real one, with all the
// kinds of the program, on a store in memory that runs until the test is over.
//
// What a server is to have beyond that, the test says: nothing is admitted,
// authenticated or connected by itself.
//
// It is a test kit: only tests import it. Those of clients that need no real server
// use package client/clienttest, whose model is told by the same rules and faster.
package apiservertest
