package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A part of the suite is what one run of ginkgo covers. Each conformance test is in exactly one part, because the filters
// exclude each other.
type part struct {
	name   string
	labels string // filter, in ginkgo's language
	procs  int    // 0 means as many as the user chose
	others bool   // tests that are not conformance tests
}

// otherTests returns the part of the tests that match a filter and are not conformance tests.
func otherTests(labels string) part {
	return part{name: "others", labels: "!Conformance && (" + labels + ")", others: true}
}

func allParts() []part {
	const someSlow = 6 // these wait most of the time
	return []part{
		{name: "parallel", labels: "Conformance && !Slow && !Serial && !Disruptive"},
		{name: "slow", labels: "Conformance && Slow && !Serial && !Disruptive", procs: someSlow},
		{name: "serial", labels: "Conformance && (Serial || Disruptive)", procs: 1},
	}
}

// choose returns the parts of a list such as parallel,slow; all if it is empty.
func choose(only string) ([]part, error) {
	if only == "" {
		return allParts(), nil
	}
	var chosen []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(allParts(), func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("part %q: must be parallel, slow or serial", name)
		}
		chosen = append(chosen, allParts()[i])
	}
	return chosen, nil
}

// stages returns the parts that run at the same time, in the order of the stages. The serial part needs the cluster for itself;
// the slow part waits nearly all of the time, and runs beside the parallel one.
func stages(parts []part) (all [][]part) {
	var together, alone []part
	for _, p := range parts {
		if p.procs == 1 {
			alone = append(alone, p)
		} else {
			together = append(together, p)
		}
	}
	for _, s := range [][]part{together, alone} {
		if len(s) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// runStage runs parts at the same time, and prints what the cluster has used.
func (o options) runStage(ctx context.Context, c *cluster, parts []part) error {
	before, err := c.usage()
	if err != nil {
		return err
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g sync.WaitGroup
	errs := make([]error, len(parts))
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
		g.Go(func() {
			if errs[i] = o.runPart(ctx, c, p); errs[i] != nil {
				errs[i] = fmt.Errorf("part %s: %w", p.name, errs[i])
				cancel()
			}
		})
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	after, err := c.usage()
	if err != nil {
		return err
	}
	printUsage(os.Stdout, fmt.Sprintf("%s, %.0f s", strings.Join(names, " and "), time.Since(began).Seconds()), since(before, after))
	return nil
}

// runPart runs a part of the suite. That tests fail is no error.
func (o options) runPart(ctx context.Context, c *cluster, p part) error {
	log, err := os.Create(filepath.Join(o.results, p.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	file := filepath.Join(o.results, p.name+".json")
	if err := os.RemoveAll(file); err != nil {
		return err
	}
	args := []string{
		"--procs=" + strconv.Itoa(cmp.Or(p.procs, o.procs)), "--timeout=2h", "--no-color", "-v", "--output-interceptor-mode=none", "--keep-going",
		"--label-filter=" + p.labels, "--output-dir=" + o.results, "--json-report=" + p.name + ".json",
	}
	if o.focus != "" {
		args = append(args, "--focus="+o.focus)
	}
	args = append(args, filepath.Join(o.bin, "e2e.test"), "--", "--kubeconfig="+c.kubeconfig(), "--provider=skeleton",
		"--kubectl-path="+filepath.Join(o.bin, "kubectl"), "--disable-log-dump", "--allowed-not-ready-nodes=0", "--num-nodes=2")
	fmt.Printf("part %s: running, log in %s\n", p.name, log.Name())
	began := time.Now()
	cmd := exec.CommandContext(ctx, filepath.Join(o.bin, "ginkgo"), args...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = log, log, c.env(), o.work
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it cleans up, and reports what it has
	cmd.WaitDelay = 2 * time.Minute
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && (ctx.Err() != nil || !errors.As(err, &exit)) {
		return err
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("ginkgo wrote no report, see %s: %w", log.Name(), err)
	}
	fmt.Printf("part %s: done after %.0f s\n", p.name, time.Since(began).Seconds())
	return nil
}
