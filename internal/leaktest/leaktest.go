// Package leaktest fails tests that leave goroutines behind.
//
// It is a test kit: only tests and kits import it.
package leaktest

import (
	"testing"

	"go.uber.org/goleak"
)

// looks is how often goleak looks, for about half a second each time. Goroutines of connections take longer to end on a
// busy machine, and those of libraries may wait for a while: net/http for half a second before it closes a connection whose
// request was not read, and for one after it sent a GOAWAY to a client of HTTP/2; the SPDY library for one until its error is read.
const looks = 20

// Main is for a TestMain: it runs the tests, and exits with their code, or with 1 if they pass but goroutines are left that do
// not end. The options say which ones do not count.
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(settling{m, options}, options...)
}

// None fails a test if goroutines are left that do not end. The options say which ones do not count.
func None(t testing.TB, options ...goleak.Option) {
	t.Helper()
	settle(options)
	goleak.VerifyNone(t, options...)
}

// settling are tests that let goroutines end after them.
type settling struct {
	m       *testing.M
	options []goleak.Option
}

// Run implements [goleak.TestingM].
func (s settling) Run() int {
	code := s.m.Run()
	if code == 0 {
		settle(s.options)
	}
	return code
}

// settle waits until no goroutines are left, for as long as that may take.
func settle(options []goleak.Option) {
	for range looks - 1 { // the last one is goleak's own
		if goleak.Find(options...) == nil {
			return
		}
	}
}
