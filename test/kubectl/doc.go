// Command kubectl is upstream's kubectl, unmodified, for tests.
//
// It is built from the modules that kubectl is published as, so that the tests ask
// the questions that users' kubectl asks, without a download and with a version that
// go.mod names. It is never part of the product.
package main
