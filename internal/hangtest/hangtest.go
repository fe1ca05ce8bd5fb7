// Package hangtest ends tests and fuzzers whose code under test does not come to an end.
//
// Go's fuzzer runs an input for as long as it takes: code that loops for ever on an input stops the fuzzer, and is no
// finding. With a limit for each input it is one.
package hangtest

import (
	"fmt"
	"runtime/debug"
	"testing"
	"time"
)

// Limit is how long one input may take. The slowest inputs of fuzzers take a second on a busy machine with the race detector.
const Limit = 30 * time.Second

// Guard ends the process with the stacks of all goroutines unless the returned function is called within [Limit]. A panic
// is the only way to stop a loop from outside; the fuzzer keeps the input.
//
//	defer hangtest.Guard(t)()
func Guard(t testing.TB) (done func()) {
	name := t.Name()
	timer := time.AfterFunc(Limit, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("%s: an input takes more than %s", name, Limit))
	})
	return func() { timer.Stop() }
}
