package cluster

import (
	"context"
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
		if err := progress(stages, func(step string) { got = append(got, step) }).Run(ctx); err != nil {
			t.Error(err)
		}
		if want := []string{"waiting for bootstrap", "waiting for node a"}; !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
	})
}
