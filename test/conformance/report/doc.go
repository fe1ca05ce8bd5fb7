// Package report reads what ginkgo, the runner of upstream's end-to-end suite, reports about the parts of a run, and makes the
// table of the conformance tests and the files that the certification programme wants of it.
package report
