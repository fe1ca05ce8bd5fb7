package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// simulated measures a cluster of 5,000 simulated nodes: the time until all are Ready, and their
// cost without any requests. The floor of the start is that of a cluster with one such node, and
// the cost per node must not grow with their number.
func (b *bench) simulated(ctx context.Context) error {
	const few, many = 500, 5000
	began, registered := map[int]time.Duration{}, map[int]time.Duration{}
	pss := map[int]int64{}
	var pid int
	for _, n := range []int{1, few, many} {
		if err := b.down(ctx); err != nil {
			return err
		}
		start := time.Now()
		if _, err := b.sampan(ctx, "up", fmt.Sprintf("--simulated-nodes=%d", n)); err != nil {
			return err
		}
		began[n] = time.Since(start)
		if err := b.allReady(ctx, n); err != nil {
			return err
		}
		var err error
		if n > 1 {
			if registered[n], err = b.registration(); err != nil {
				return err
			}
		}
		if pid, err = b.process(); err != nil {
			return err
		}
		// What a busy process holds it gives back when it is quiet.
		if err := pause(ctx, 20*time.Second); err != nil {
			return err
		}
		if pss[n], err = memory([]int{pid}); err != nil {
			return err
		}
	}
	b.against(fmt.Sprintf("sampan up of %d simulated nodes, until all are Ready", many), began[many], began[1], "<= 3 s")
	each := func(n int) time.Duration { return registered[n] / time.Duration(n) }
	b.row(fmt.Sprintf("registration of a simulated node, one of %d and one of %d", many, few), fmt.Sprintf("%d µs", each(many).Microseconds()), fmt.Sprintf("%d µs", each(few).Microseconds()), fmt.Sprintf("%.1f", float64(each(many))/float64(each(few))), "<= 1.5 times")
	b.row(fmt.Sprintf("memory per idle simulated node of %d (PSS), its objects included", many), fmt.Sprintf("%.1f KiB", float64(pss[many]-pss[1])/many/1024), "", "", "<= 20 KiB")

	const window = time.Minute
	ticks, written, err := usage([]int{pid})
	if err != nil {
		return err
	}
	if err := pause(ctx, window); err != nil {
		return err
	}
	ticksAfter, writtenAfter, err := usage([]int{pid})
	if err != nil {
		return err
	}
	b.row(fmt.Sprintf("CPU at idle with %d simulated nodes", many), fmt.Sprintf("%.2f %% of a core", 100*float64(ticksAfter-ticks)/ticksPerSecond/window.Seconds()), "0", "", "<= 3 %")
	b.row(fmt.Sprintf("bytes written at idle with %d simulated nodes", many), fmt.Sprintf("%d per minute", writtenAfter-written), "0", "", "0")
	return nil
}

// registration returns how long the registration of the nodes took, from the log.
func (b *bench) registration() (time.Duration, error) {
	log, err := os.ReadFile(filepath.Join(b.data(), "sampan.log"))
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`msg="simulated nodes are registered" nodes=\d+ after=(\S+)`).FindSubmatch(log)
	if m == nil {
		return 0, errors.New("the log does not say how long the registration of nodes took")
	}
	return time.ParseDuration(string(m[1]))
}

// process returns the process of a cluster without a container runtime.
func (b *bench) process() (int, error) {
	var i struct{ Process struct{ PID int } }
	data, err := os.ReadFile(filepath.Join("/run/sampan", name, "instance.json"))
	if err == nil {
		err = json.Unmarshal(data, &i)
	}
	return i.Process.PID, err
}

// allReady checks that so many nodes are.
func (b *bench) allReady(ctx context.Context, n int) error {
	api, err := b.client()
	if err != nil {
		return err
	}
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for i := range nodes.Items {
		for _, c := range nodes.Items[i].Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				ready++
			}
		}
	}
	if ready != n {
		return fmt.Errorf("%d of %d nodes are Ready after sampan up, want all of %d", ready, len(nodes.Items), n)
	}
	return nil
}
