// Package controllertest runs controllers in a test: with synthetic time (testing/synctest), on a server that only stores
// objects, and with pods whose states the test sets.
//
// It is a test kit: only tests import it.
package controllertest
