// Storebench measures engines that could keep the history of a store: each one
// as a store.Backend, under the same group commit. It is how decision 0001 was
// made:
//
//	cd test/storebench && GOWORK=off go run . [-dir DIR] [-time 3s]
//
// It is a module of its own, so that the program does not link the losers.
package main
