package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

func TestSlowPartsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := func(name string, d time.Duration) run.Task {
			ready := make(chan struct{})
			time.AfterFunc(d, func() { close(ready) })
			return run.Task{Name: name, Ready: ready}
		}
		stages := []run.Stage{
			{after("store", time.Second), {Name: "without an end"}},
			{after("bootstrap", time.Minute), after("API server", 2*time.Second)},
			{after("node a", time.Hour)},
		}
		var got []string
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		if err := progress(stages, &troubles{}, func(step string) { got = append(got, step) }).Run(ctx); err != nil {
			t.Error(err)
		}
		if want := []string{"waiting for bootstrap", "waiting for node a"}; !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
	})
}

func TestRefusedWritesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		var known troubles
		var got []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = progress([]run.Stage{{{Name: "node", Ready: ready}}}, &known, func(step string) { got = append(got, step) }).Run(ctx)
		}()
		refusals := []error{errors.New(`admission webhook "a" denied the request: no`), errors.New("policy")}
		for range 5 { // tries
			known.note("n", refusals[0])
			time.Sleep(time.Second)
		}
		for range 1 {
			known.note("n", refusals[1])
			known.note("node-1", errors.New(`nodes "node-1" is forbidden`))
			known.note("node-2", errors.New(`nodes "node-2" is forbidden`))
			time.Sleep(time.Second)
		}
		close(ready)
		synctest.Wait()
		known.note("n", refusals[0]) // long after the start
		synctest.Wait()
		cancel()
		<-done
		want := []string{`waiting for node: admission webhook "a" denied the request: no`, `waiting for node: nodes "node-1" is forbidden`}
		if !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
	})
}
