package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bench PATH-OF-SAMPAN")
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := measure(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, program string) error {
	dir, err := os.MkdirTemp("", "sampan-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{program: program, dir: dir, out: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	b.row("what", "measured", "floor", "ratio", "goal")
	defer func() { _ = b.out.Flush() }()
	for _, step := range []func(context.Context) error{b.starts, b.size, b.idle, b.pods, b.waiting, b.requests} {
		if err := step(ctx); err != nil {
			return err
		}
		_ = b.out.Flush()
	}
	return b.down(ctx)
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

func median(ds []time.Duration) time.Duration {
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
	b.row("size of the program", fmt.Sprintf("%.1f MB", float64(i.Size())/1e6), "", "", "<= 60 MB")
	return nil
}
