// Command kubectl is upstream's kubectl, unmodified, for tests.
//
// It is built from the modules that kubectl is published as, so that the tests send the
// same requests as users' kubectl, without a download and with the version of go.mod. It
// is never part of the product.
package main
