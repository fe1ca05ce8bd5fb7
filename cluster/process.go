package cluster

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/run"
)

// A Process is the part that all clusters of one process have in common: the rules for Go's collector, and how memory
// is given back to the system when all of them are quiet. It is safe for concurrent use.
type Process struct {
	activity *memory.Activity // each write to one of the clusters is some
	log      *slog.Logger

	mu    sync.Mutex
	free  map[*cluster]func() // lets go of what a cluster can make again; guarded by mu
	share int                 // how many clusters the memory for objects is for, at least 1
}

// NewProcess returns a Process for a number of clusters, each of which gets the same part of the memory for objects; 0
// means one cluster. It starts no goroutines. A nil log means slog.Default.
func NewProcess(clusters int, log *slog.Logger) *Process {
	if log == nil {
		log = slog.Default()
	}
	return &Process{activity: memory.NewActivity(), log: log, free: map[*cluster]func(){}, share: max(1, clusters)}
}

// Bound sets the limit of the memory of the process until the result is called. It is called before a cluster is made.
func (p *Process) Bound() (restore func()) { return memory.Bound(memoryLimit()) }

// Run follows the collector until ctx is over. It blocks.
func (p *Process) Run(ctx context.Context) error {
	return memory.Run(ctx, memory.Options{
		Headroom: headroom, Percent: garbagePercent, Limit: memoryLimit(), Activity: p.activity, Log: p.log, Release: p.release,
	})
}

// release drops the values that the clusters can make again.
func (p *Process) release() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.free))
	p.mu.Unlock()
	for _, free := range all {
		free()
	}
}

// add has free called when memory is given back, until the task that is returned ends.
func (p *Process) add(c *cluster, free func()) run.Task {
	return run.Task{Name: "memory of the cluster", Run: func(ctx context.Context) error {
		p.mu.Lock()
		p.free[c] = free
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		delete(p.free, c)
		p.mu.Unlock()
		return nil
	}}
}
