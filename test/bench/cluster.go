package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const name = "bench"

// sampan runs a verb and returns what it printed.
func (b *bench) sampan(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--name=" + name, "--data-dir=" + b.data()}, args...)
	cmd := exec.CommandContext(ctx, b.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(b.dir, "kubeconfig")) // not all commands take the flag
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("sampan %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

func (b *bench) down(ctx context.Context) error {
	_, err := b.sampan(context.WithoutCancel(ctx), "down", "--purge")
	return err
}

// starts measures `sampan up`, from the command to its return, with and without
// keys to make. The floor is the start of the program itself.
func (b *bench) starts(ctx context.Context) error {
	const n = 5
	var floor, first, later []time.Duration
	timed := func(to *[]time.Duration, args ...string) error {
		began := time.Now()
		_, err := b.sampan(ctx, args...)
		*to = append(*to, time.Since(began))
		return err
	}
	if err := b.down(ctx); err != nil { // the starts to measure are others
		return err
	}
	for range n {
		if err := timed(&floor, "version", "--client"); err != nil {
			return err
		}
		if err := timed(&first, "up"); err != nil {
			return err
		}
		if _, err := b.sampan(ctx, "down"); err != nil {
			return err
		}
		if err := timed(&later, "up"); err != nil {
			return err
		}
		if err := b.down(ctx); err != nil {
			return err
		}
	}
	b.against("sampan up, first start, p50", median(first), median(floor), "<= 500 ms")
	b.against("sampan up, later starts, p50", median(later), median(floor), "<= 300 ms")
	return nil
}

// instance returns the processes of the cluster, as it wrote them down: one, or with a
// real node two.
func (b *bench) instance() (pids []int, err error) {
	var i struct{ Process, Runtime struct{ PID int } }
	for _, from := range []struct {
		file string
		into any
	}{{"instance.json", &i}, {"runtime.json", &i.Runtime}} {
		data, err := os.ReadFile(filepath.Join("/run/sampan", name, from.file))
		if errors.Is(err, fs.ErrNotExist) && from.into == &i.Runtime {
			return []int{i.Process.PID}, nil
		}
		if err == nil {
			err = json.Unmarshal(data, from.into)
		}
		if err != nil {
			return nil, err
		}
	}
	return []int{i.Process.PID, i.Runtime.PID}, nil
}

// idle measures memory, CPU and bytes written without any requests.
func (b *bench) idle(ctx context.Context) error {
	pids, err := b.instance()
	if err != nil {
		return err
	}
	settle, window := 10*time.Second, time.Minute
	if err := pause(ctx, settle); err != nil {
		return err
	}
	ticks, written, err := usage(pids)
	if err != nil {
		return err
	}
	if err := pause(ctx, window); err != nil {
		return err
	}
	ticksAfter, writtenAfter, err := usage(pids)
	if err != nil {
		return err
	}
	// The median: a moment after each renewal of a lease there is more.
	var pss []int64
	for range 21 {
		now, err := memory(pids)
		if err == nil {
			err = pause(ctx, 500*time.Millisecond)
		}
		if err != nil {
			return err
		}
		pss = append(pss, now)
	}
	b.row("memory at idle (PSS), all processes, p50", mib(median(pss)), "", "", "<= 25 MiB")
	cpu := float64(ticksAfter-ticks) / ticksPerSecond / window.Seconds()
	b.row("CPU at idle", fmt.Sprintf("%.2f %% of a core", 100*cpu), "0", "", "<= 0.3 %")
	b.row("bytes written at idle", fmt.Sprintf("%d per minute", writtenAfter-written), "0", "", "0")
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

const ticksPerSecond = 100 // USER_HZ, proc(5)

// usage returns the clock ticks and the bytes sent to a disk of processes.
func usage(pids []int) (ticks, written int64, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, 0, err
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
		for _, i := range []int{11, 12} { // utime and stime, counted from the state
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return 0, 0, err
			}
			ticks += n
		}
		n, err := field(fmt.Sprintf("/proc/%d/io", pid), "write_bytes:")
		if err != nil {
			return 0, 0, err
		}
		written += n
	}
	return ticks, written, nil
}

func memory(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		kib, err := field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
		if err != nil {
			return 0, err
		}
		sum += kib << 10
	}
	return sum, nil
}

// field returns the number behind a name in a file of /proc.
func field(path, key string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}
