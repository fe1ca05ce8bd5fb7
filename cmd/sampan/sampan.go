package main

import (
	"context"
	"io"
	"log/slog"

	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli"
	"github.com/sampan-io/sampan/cli/machine"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
)

// sampan runs the command line with the given arguments and returns its exit
// code. It is here that the command line learns what a cluster is.
func sampan(ctx context.Context, release func(), in io.Reader, out, errOut io.Writer, args ...string) int {
	verbs := machine.Options{
		Version: version,
		Serve:   serve,
		Clean:   cluster.Clean,
		Verb: func(ctx context.Context, in io.Reader, args ...string) int {
			return sampan(ctx, release, in, out, errOut, args...)
		},
	}
	return cli.Main(ctx, args, cli.Options{
		Version:      version,
		In:           in,
		Out:          out,
		Err:          errOut,
		Extra:        machine.Commands(verbs),
		RunScheduler: runScheduler,
		Release:      release,
	})
}

func serve(ctx context.Context, s machine.Service) error {
	return cluster.Run(ctx, cluster.Options{
		Profile:  s.Profile,
		Settings: s.Settings,
		Version:  version,
		Runtime:  runtimeProgram,
		Report:   s.Report,
		Log:      s.Log,
	})
}

// runScheduler schedules for a cluster that may be somebody else's.
func runScheduler(ctx context.Context, cfg *rest.Config, name string) error {
	api, err := client.NewREST(cfg, client.RESTOptions{UserAgent: "sampan-scheduler/" + version})
	if err != nil {
		return err
	}
	s, err := scheduler.New(scheduler.Options{Client: api, Plugins: builtin.Default(), Name: name, Log: slog.Default()})
	if err != nil {
		return err
	}
	return run.Stages(ctx, run.Stage{{Name: "scheduler", Run: s.Run, Ready: s.Ready()}})
}
