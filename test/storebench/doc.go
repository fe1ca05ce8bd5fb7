// Command storebench compares storage engines for the history of a store: each one as a
// store.Backend, under the same group commit. Decision 0001 is based on it:
//
//	cd test/storebench && GOWORK=off go run . [-dir DIR] [-time 3s]
//
// It is a separate module, so that the program does not link the rejected engines.
package main
