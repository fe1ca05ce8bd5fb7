package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// fleet measures what a further cluster in a process costs. The lower bound is the first cluster of a process.
func (b *bench) fleet(ctx context.Context) error {
	one, err := b.clusters(ctx, 1)
	if err != nil {
		return err
	}
	for _, n := range []int{20, 200} {
		many, err := b.clusters(ctx, n)
		if err != nil {
			return err
		}
		further := func(all, first int64) int64 { return (all - first) / int64(n-1) }
		b.row(fmt.Sprintf("memory of a further cluster (PSS), %d in a process", n), mib(further(many.memory, one.memory)), mib(one.memory), "", "<= 6 MiB")
		b.against(fmt.Sprintf("start of a further cluster, %d in a process", n), time.Duration(further(int64(many.ready), int64(one.ready))), one.ready, "<= 20 ms")
		b.against(fmt.Sprintf("CPU of the start of a further cluster, %d in a process", n), time.Duration(further(int64(many.cpu), int64(one.cpu))), one.cpu, "")
		b.row(fmt.Sprintf("CPU of %d idle clusters", n), fmt.Sprintf("%.2f %% of a core", 100*many.idle), "0", "", "")
	}
	return nil
}

// A fleetCost is the cost of clusters in one process.
type fleetCost struct {
	ready  time.Duration // from the command to its return
	cpu    time.Duration // until then
	memory int64         // proportional set size after a rest, in bytes
	idle   float64       // processors in use at rest
}

// clusters runs clusters in one process, and removes them.
func (b *bench) clusters(ctx context.Context, n int) (c fleetCost, err error) {
	// Later flags go before those of the usual cluster.
	own := []string{"--name=" + name + "-fleet", "--data-dir=" + filepath.Join(b.dir, "fleet")}
	began := time.Now()
	if _, err := b.sampan(ctx, append(own, "up", fmt.Sprintf("--clusters=%d", n))...); err != nil {
		return c, err
	}
	c.ready = time.Since(began)
	defer func() {
		_, downErr := b.sampan(context.WithoutCancel(ctx), append(own, "down", "--clusters", "--purge")...)
		err = errors.Join(err, downErr)
	}()
	text, err := b.sampan(ctx, "status", "--name="+name+"-fleet-1", "--data-dir="+filepath.Join(b.dir, "fleet", name+"-fleet-1"), "-o", "json")
	if err != nil {
		return c, err
	}
	var status struct{ Process struct{ PID int } }
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return c, err
	}
	pids := []int{status.Process.PID}
	starting, _, err := usage(pids)
	if err != nil {
		return c, err
	}
	c.cpu = time.Duration(float64(starting) / ticksPerSecond * float64(time.Second))
	const settle, window = 10 * time.Second, 20 * time.Second
	if err := pause(ctx, settle); err != nil {
		return c, err
	}
	before, _, err := usage(pids)
	if err != nil {
		return c, err
	}
	if err := pause(ctx, window); err != nil {
		return c, err
	}
	after, _, err := usage(pids)
	if err != nil {
		return c, err
	}
	c.idle = float64(after-before) / ticksPerSecond / window.Seconds()
	c.memory, err = memory(pids)
	return c, err
}
