// Command conformance runs the conformance tests of upstream's end-to-end suite against a cluster of two nodes that it starts
// and takes down. .ci/conformance builds what it needs, and runs it in namespaces of its own: the second node has the network
// namespace "two".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sampan-io/sampan/test/conformance/images"
	"github.com/sampan-io/sampan/test/conformance/report"
)

// errFailed says that not all tests have passed.
var errFailed = errors.New("not all tests passed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: conformance images|run [flags]")
	}
	f := flag.NewFlagSet(args[0], flag.ExitOnError)
	var o options
	f.StringVar(&o.bin, "bin", "", "directory of the suite and the images")
	switch args[0] {
	case "images":
		var s images.Sources
		f.StringVar(&s.Debian, "debian", "", "tar file of a Debian system")
		f.StringVar(&s.Images, "upstream", "", "directory test/images of upstream's module")
		f.StringVar(&s.CSI, "csi", "", "directory of the CSI driver and its sidecars; their images are not made if it is empty")
		_ = f.Parse(args[1:]) // it exits on errors
		s.Bin = o.bin
		return makeImages(s)
	case "run":
		f.StringVar(&o.sampan, "sampan", "", "the program under test")
		f.StringVar(&o.results, "results", "", "directory for the results")
		f.StringVar(&o.work, "work", "", "directory for the data of the nodes")
		f.StringVar(&o.name, "name", "conformance", "name of the cluster")
		f.StringVar(&o.focus, "focus", "", "regular expression of the names of tests")
		f.StringVar(&o.kubelet, "kubelet-config", "", "file with a KubeletConfiguration for both nodes")
		f.IntVar(&o.procs, "procs", 12, "processes of the suite in the parallel part")
		f.StringVar(&o.labels, "labels", "", "run the tests that have these labels (a filter of ginkgo) and are not conformance tests, instead")
		only := f.String("parts", "", "comma-separated parts to run: parallel, slow, serial")
		_ = f.Parse(args[1:]) // it exits on errors
		return o.run(ctx, *only)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// makeImages writes the stand-ins to the directory images and as an archive beside it.
func makeImages(s images.Sources) error {
	list, err := os.ReadFile(filepath.Join(s.Bin, "images.txt"))
	if err != nil {
		return err
	}
	s.Names = strings.Fields(string(list))
	dir := filepath.Join(s.Bin, "images")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	names, err := images.Write(s, dir)
	if err != nil {
		return err
	}
	fmt.Println("images:", strings.Join(names, " "))
	return images.Archive(dir, dir+".tar")
}

// options are the flags of the command run.
type options struct {
	bin, sampan, results, work, name, focus, labels, kubelet string
	procs                                                    int
}

// run starts the cluster, runs the suite, takes the cluster down, and writes the report.
func (o options) run(ctx context.Context, only string) (err error) {
	parts, err := choose(only)
	if err != nil {
		return err
	}
	if o.labels != "" {
		if only != "" {
			return errors.New("-labels and -parts exclude each other: parts are of conformance tests")
		}
		parts = []part{otherTests(o.labels)}
	}
	if err := os.MkdirAll(o.results, 0o755); err != nil {
		return err
	}
	c := newCluster(o)
	defer func() {
		err = errors.Join(err, c.down(context.WithoutCancel(ctx)))
	}()
	if err := c.up(ctx); err != nil {
		return err
	}
	reports := make([]report.Part, len(parts))
	for i, p := range parts {
		reports[i] = report.Part{Name: p.name, File: filepath.Join(o.results, p.name+".json"), Others: p.others}
	}
	for _, beside := range stages(parts) {
		if err := o.runStage(ctx, c, beside); err != nil {
			return err
		}
	}
	usage, err := c.usage()
	if err != nil {
		return err
	}
	printUsage(os.Stdout, "the whole run, with the start of the cluster", usage)
	return o.report(reports, only == "" && o.labels == "" && o.focus == "")
}

// report writes the results. If the run was to be complete, a conformance test that did not run is a failure.
func (o options) report(parts []report.Part, complete bool) error {
	r, err := report.Read(parts)
	if err != nil {
		return err
	}
	var errs []error
	for name, write := range map[string]func(io.Writer) error{"table.tsv": r.WriteTable, "junit_01.xml": r.WriteJUnit} {
		errs = append(errs, toFile(filepath.Join(o.results, name), write))
	}
	errs = append(errs, o.joinLogs(parts), r.WriteSummary(os.Stdout))
	for _, t := range r.Tests {
		incomplete := t.State == report.NotRun || t.State == report.Skipped
		if !t.Passed() && (complete || !incomplete) {
			errs = append(errs, errFailed)
			break
		}
	}
	if len(r.Problems) > 0 {
		errs = append(errs, errors.New("the suite reported problems outside of its tests"))
	}
	return errors.Join(errs...)
}

// joinLogs writes the logs of the parts to e2e.log.
func (o options) joinLogs(parts []report.Part) error {
	return toFile(filepath.Join(o.results, "e2e.log"), func(w io.Writer) error {
		for _, p := range parts {
			log, err := os.Open(filepath.Join(o.results, p.Name+".log"))
			if err != nil {
				return err
			}
			_, err = io.Copy(w, log)
			if err = errors.Join(err, log.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func toFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
