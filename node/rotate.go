package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/logs"
)

// logReopener opens the log of a container again after it was renamed.
type logReopener interface {
	ReopenContainerLog(ctx context.Context, id string) error
}

// rotateLogs rotates the logs of containers whose runtime does not do it itself, as upstream's kubelet: the size of each is
// checked every containerLogMonitorInterval. (Sampan's own runtime rotates before a write; see docs/decisions/0024.)
func (n *Node) rotateLogs(ctx context.Context) error {
	rt, ok := n.opts.Runtime.(logReopener)
	if !ok {
		return nil
	}
	c := n.config()
	size, files := c.LogLimits()
	for run.Pause(ctx, c.ContainerLogMonitorInterval.Duration) {
		for _, w := range n.allWorkers() {
			state, _ := w.Status()
			for _, one := range state.Containers {
				if one.State != lifecycle.Running || ctx.Err() != nil {
					continue
				}
				path := filepath.Join(n.logs(state.Pod), crispec.LogPath(one.Name, one.Attempt))
				_, err := logs.Rotate(path, logs.Limits{Size: size, Files: files}, time.Now(), func() error {
					return rt.ReopenContainerLog(ctx, one.ID)
				})
				if err != nil && ctx.Err() == nil {
					n.log.Warn("log of a container not rotated, will try again", "path", path, "err", err)
				}
			}
		}
	}
	return nil
}
