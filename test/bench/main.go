package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	switch {
	case len(os.Args) < 2:
		err = errors.New("usage: bench PATH-OF-SAMPAN [STEP...]")
	case os.Args[1] == bareVerb:
		err = serveBare(ctx)
	case os.Args[1] == bareNamesVerb:
		err = serveBareNames(ctx)
	case os.Args[1] == bareForwardVerb && len(os.Args) == 4:
		err = forwardBare(os.Args[2], os.Args[3])
	default:
		err = measure(ctx, os.Args[1], os.Args[2:])
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A step is a part of the measurements, on a new cluster of its own.
type step struct {
	name    string
	measure func(*bench, context.Context) error
	up      []string // arguments of `sampan up`
	alone   bool     // it makes its cluster itself
}

func steps() []step {
	return []step{
		{name: "starts", measure: (*bench).starts},
		{name: "size", measure: (*bench).size},
		{name: "idle", measure: (*bench).idle},
		{name: "pods", measure: (*bench).pods},
		{name: "wait", measure: (*bench).waiting},
		{name: "waits", measure: (*bench).waits},
		{name: "rolling", measure: (*bench).rolling, up: []string{"--simulated-nodes=4"}},
		{name: "simulated", measure: (*bench).simulated, up: []string{"--simulated-nodes=1"}},
		{name: "scheduling", measure: (*bench).scheduling, up: []string{"--simulated-nodes=1"}},
		{name: "rules", measure: (*bench).rules, up: []string{"--simulated-nodes=1"}},
		{name: "preemption", measure: (*bench).preemption, up: []string{"--simulated-nodes=1"}},
		{name: "requests", measure: (*bench).requests},
		{name: "conflicts", measure: (*bench).conflicts},
		{name: "lists", measure: (*bench).lists},
		{name: "burst", measure: (*bench).burst, up: []string{"--simulated-nodes=1"}},
		{name: "watches", measure: (*bench).watches},
		{name: "informers", measure: (*bench).informers, up: []string{"--simulated-nodes=1"}},
		{name: "definitions", measure: (*bench).definitions, up: []string{"--simulated-nodes=1"}},
		{name: "customs", measure: (*bench).customs, up: []string{"--simulated-nodes=1"}},
		{name: "snapshots", measure: (*bench).snapshots, up: []string{"--simulated-nodes=1", "--store-quota=2Gi"}},
		{name: "saves", measure: (*bench).saves, up: []string{"--simulated-nodes=1", "--store-quota=2Gi"}},
		{name: "forks", measure: (*bench).forks, up: []string{"--simulated-nodes=3"}},
		{name: "clusters", measure: (*bench).fleet, alone: true},
		{name: "dns", measure: (*bench).names, up: []string{"--simulated-nodes=1"}},
		{name: "services", measure: (*bench).services, alone: true},
	}
}

// measure takes the steps that were asked for, or all of them.
func measure(ctx context.Context, program string, asked []string) error {
	for _, name := range asked {
		if !slices.ContainsFunc(steps(), func(s step) bool { return s.name == name }) {
			return fmt.Errorf("there is no step %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "sampan-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{program: program, dir: dir, out: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	b.row("what", "measured", "floor", "ratio", "goal")
	defer func() { _ = b.out.Flush() }()
	for _, s := range steps() {
		if len(asked) > 0 && !slices.Contains(asked, s.name) {
			continue
		}
		if err := b.take(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		_ = b.out.Flush()
	}
	return nil
}

// take takes a step.
func (b *bench) take(ctx context.Context, s step) error {
	if s.alone {
		return s.measure(b, ctx)
	}
	_, err := b.sampan(ctx, append([]string{"up"}, s.up...)...)
	if err == nil {
		err = s.measure(b, ctx)
	}
	return errors.Join(err, b.down(ctx))
}

// A bench is one run of all measurements, on one cluster.
type bench struct {
	program string
	dir     string
	out     *tabwriter.Writer
}

func (b *bench) row(cells ...string) {
	for i, c := range cells {
		if i > 0 {
			_, _ = fmt.Fprint(b.out, "\t")
		}
		_, _ = fmt.Fprint(b.out, c)
	}
	_, _ = fmt.Fprintln(b.out)
}

// against prints a duration beside its floor.
func (b *bench) against(what string, measured, floor time.Duration, goal string) {
	b.row(what, ms(measured), ms(floor), fmt.Sprintf("%.1f", float64(measured)/float64(floor)), goal)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func median[T cmp.Ordered](ds []T) T {
	ds = slices.Clone(ds)
	slices.Sort(ds)
	return ds[len(ds)/2]
}

func quantile(ds []time.Duration, q float64) time.Duration {
	ds = slices.Clone(ds)
	slices.Sort(ds)
	return ds[min(len(ds)-1, int(float64(len(ds))*q))]
}

func (b *bench) data() string { return filepath.Join(b.dir, "data") }

// size prints the size of the program.
func (b *bench) size(context.Context) error {
	i, err := os.Stat(b.program)
	if err != nil {
		return err
	}
	b.row("size of the program", fmt.Sprintf("%.1f MB", float64(i.Size())/1e6), "", "", "<= 80 MB")
	return nil
}
