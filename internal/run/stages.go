package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// A Task is one long-running part of the program.
type Task struct {
	Name string

	// Run works until ctx is over, then returns nil or what went wrong while
	// stopping. Returning earlier, even with nil, ends the whole run.
	Run func(ctx context.Context) error

	// Ready is closed by the task once others may depend on it. A nil Ready
	// means ready from the start.
	Ready <-chan struct{}
}

// A Stage is a set of tasks that may start in any order.
type Stage []Task

// Stages starts the stages one after the other, each when the one before is ready, and runs them
// until ctx is cancelled or any task returns. Then it stops them in the reverse order: a stage has
// ended completely before the context of the stage below it is cancelled. It returns when every
// task has returned.
//
// The result is nil if ctx ended the run and every task stopped cleanly; otherwise it joins the
// errors of the tasks, each under its name.
func Stages(ctx context.Context, stages ...Stage) error {
	e := &ending{first: make(chan struct{})}
	var stops []func()
	for _, s := range stages {
		// Ending ctx must stop the last stage first, not all of them at once,
		// so no stage inherits its cancellation.
		stageCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		var wg sync.WaitGroup
		for _, t := range s {
			wg.Go(func() { e.note(t.Name, t.Run(stageCtx), stageCtx.Err() != nil) })
		}
		stops = append(stops, func() { cancel(); wg.Wait() })
		if !e.awaitReady(ctx, s) {
			break
		}
	}
	select {
	case <-ctx.Done():
	case <-e.first:
	}
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.errs...)
}

// ending collects how the tasks of one run ended.
type ending struct {
	first chan struct{} // closed when the first task ends before its context is cancelled
	once  sync.Once

	mu   sync.Mutex
	errs []error // guarded by mu
}

func (e *ending) note(name string, err error, stopped bool) {
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", name, err)
	case !stopped:
		err = fmt.Errorf("%s ended on its own", name)
	}
	if err != nil {
		e.mu.Lock()
		e.errs = append(e.errs, err)
		e.mu.Unlock()
	}
	if !stopped {
		e.once.Do(func() { close(e.first) })
	}
}

// awaitReady reports whether all tasks of s became ready before the run ended.
func (e *ending) awaitReady(ctx context.Context, s Stage) bool {
	for _, t := range s {
		if t.Ready == nil {
			continue
		}
		select {
		case <-t.Ready:
		case <-ctx.Done():
			return false
		case <-e.first:
			return false
		}
	}
	return true
}
