package cluster

import (
	"context"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// patience is how long a part may start before the process that started the cluster reports that it waits for it. Most starts
// take less altogether.
const patience = 3 * time.Second

// progress returns a task that reports parts of the stages, in their order, that are not ready in time: a stored admission
// policy or webhook can keep them from writing what they need.
func progress(stages []run.Stage, report func(step string)) run.Task {
	return run.Task{Name: "progress of the start", Run: func(ctx context.Context) error {
		for _, s := range stages {
			for _, t := range s {
				if t.Ready != nil {
					awaitPart(ctx, t, report)
				}
			}
		}
		<-ctx.Done()
		return nil
	}}
}

func awaitPart(ctx context.Context, t run.Task, report func(step string)) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.Ready:
		return
	case <-ctx.Done():
		return
	case <-timer.C:
		report("waiting for " + t.Name)
	}
	select {
	case <-t.Ready:
	case <-ctx.Done():
	}
}
