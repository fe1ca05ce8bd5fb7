package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A usage is what a process has used since its start.
type usage struct {
	process string
	pid     int
	seconds float64 // of CPU, with those of its children that have ended
	peakMiB float64 // of resident memory
}

// usage returns what the processes of the cluster have used: the server with its node, the agent, and their runtimes.
func (c *cluster) usage() ([]usage, error) {
	var all []usage
	for i, n := range c.nodes {
		var instance struct {
			Process struct{ PID int } `json:"process"`
		}
		var runtime struct{ PID int }
		dir := filepath.Join("/run/sampan", n.profile)
		if err := errors.Join(readJSON(filepath.Join(dir, "instance.json"), &instance), readJSON(filepath.Join(dir, "runtime.json"), &runtime)); err != nil {
			return nil, err
		}
		name := []string{"serve", "agent"}[i]
		for _, u := range []usage{{process: name + " of " + n.name, pid: instance.Process.PID}, {process: "runtime of " + n.name, pid: runtime.PID}} {
			if err := u.read("/proc"); err != nil {
				return nil, err
			}
			all = append(all, u)
		}
	}
	return all, nil
}

func readJSON(file string, to any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// read reads the usage of the process from proc(5).
func (u *usage) read(proc string) error {
	dir := filepath.Join(proc, strconv.Itoa(u.pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return fmt.Errorf("%s has ended: %w", u.process, err)
	}
	// The fields after the name of the program, which may hold anything: 14 to 17 are the times in ticks, of which there are
	// 100 in a second on Linux.
	const first, last, ticks = 14 - 3, 17 - 3, 100
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) <= last {
		return fmt.Errorf("/proc/%d/stat has %d fields after the name", u.pid, len(fields))
	}
	for _, text := range fields[first : last+1] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		u.seconds += float64(n) / ticks
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return err
			}
			u.peakMiB = kib / 1024 // KiB in a MiB
		}
	}
	return nil
}

// since returns what the processes have used between two moments, with the peak of memory until the second one. One that was
// started again counts from its start.
func since(before, after []usage) []usage {
	diff := make([]usage, len(after))
	for i, u := range after {
		diff[i] = u
		if i < len(before) && before[i].pid == u.pid {
			diff[i].seconds -= before[i].seconds
		}
	}
	return diff
}

func printUsage(w io.Writer, of string, all []usage) {
	_, _ = fmt.Fprintf(w, "%s:\n", of)                              // to standard output
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight) // two spaces between columns
	for _, u := range all {
		_, _ = fmt.Fprintf(t, "%s\t%.0f s of CPU\tpeak %.0f MiB\t\n", u.process, u.seconds, u.peakMiB)
	}
	_ = t.Flush()
}
