package cluster

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// patience is how long a part may start before the process that started the cluster reports that it waits for it. Most starts
// take less altogether.
const patience = 3 * time.Second

// progress returns a task that reports parts of the stages, in their order, that are not ready in time, each with the
// trouble that is known: a stored admission policy or webhook can keep them from writing their objects. Another trouble
// is another report.
func progress(stages []run.Stage, known *troubles, report func(step string)) run.Task {
	return run.Task{Name: "progress of the start", Run: func(ctx context.Context) error {
		for _, s := range stages {
			for _, t := range s {
				if t.Ready != nil {
					awaitPart(ctx, t, known, report)
				}
			}
		}
		known.end()
		<-ctx.Done()
		return nil
	}}
}

func awaitPart(ctx context.Context, t run.Task, known *troubles, report func(step string)) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.Ready:
		return
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	for last, first := "", true; ; first = false {
		trouble, changed := known.now()
		if first || trouble != last && trouble != "" {
			step := "waiting for " + t.Name
			if trouble != "" {
				step += ": " + trouble
			}
			last = trouble
			report(step)
		}
		select {
		case <-t.Ready:
			return
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// troubles is why the last write was refused that a node needs before it is ready. The zero value is ready for use, and
// safe for concurrent use.
type troubles struct {
	mu      sync.Mutex
	why     string        // guarded by mu
	kind    string        // guarded by mu; why, without the name of the node
	changed chan struct{} // guarded by mu; closed when why is set; may be nil
	ended   bool          // guarded by mu; nothing is waited for any more
}

// note records that a node cannot be registered. What is refused to many nodes, each by its name, is one trouble.
func (t *troubles) note(node string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := strings.ReplaceAll(err.Error(), node, "")
	if t.ended || kind == t.kind {
		return
	}
	t.why, t.kind = err.Error(), kind
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// now returns the last trouble, or "", and a channel that is closed with the next one.
func (t *troubles) now() (why string, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.why, t.changed
}

// end forgets the last trouble.
func (t *troubles) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.why, t.ended = "", true
}
