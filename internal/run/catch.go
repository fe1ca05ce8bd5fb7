package run

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// A PanicError is a panic that was recovered. Its message has no stack; in a log it has one.
type PanicError struct {
	Value any
	Stack []byte
}

// Panicked returns what recover returned as an error, with the stack of the goroutine, or nil
// if that was nil. It is called by the deferred function, so that the stack is that of the panic.
func Panicked(recovered any) error {
	if recovered == nil {
		return nil
	}
	return &PanicError{recovered, debug.Stack()}
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// LogValue implements [slog.LogValuer].
func (e *PanicError) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("panic", e.Value), slog.String("stack", string(e.Stack)))
}

// Unwrap returns the error that the code panicked with, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Catch calls f and returns its error, or a [*PanicError] if f panics. It is for work on one
// object, whose fault must not end the work on all others: wherever a loop takes the next key,
// event or question, it calls what depends on the object through Catch, logs the error and goes
// on. What f locks or takes it must give back with defer.
func Catch(f func() error) (err error) {
	defer func() {
		if fault := Panicked(recover()); fault != nil {
			err = fault
		}
	}()
	return f()
}

// Shield calls f and logs if it panics, with the attributes that say what f was working on.
// It reports whether f returned. See [Catch].
func Shield(log *slog.Logger, f func(), attrs ...any) bool {
	err := Catch(func() error { f(); return nil })
	if err != nil {
		log.Error("panic, going on without this one", append(attrs, "err", err)...)
	}
	return err == nil
}
