//go:build unix

package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/sampan-io/sampan/cli"
	"github.com/sampan-io/sampan/cli/clusters"
	"github.com/sampan-io/sampan/cluster"
	"github.com/sampan-io/sampan/cluster/local"
)

// sampan runs the command line with the given arguments and returns its exit
// code. It is here that the command line learns what a cluster is.
func sampan(ctx context.Context, release func(), in io.Reader, out, errOut io.Writer, args ...string) int {
	verbs := clusters.Options{
		Version: version,
		Serve:   func(ctx context.Context, s clusters.Service) error { return serve(ctx, s, nil) },
		Share: func(count int, log *slog.Logger) (func(context.Context) error, func(context.Context, clusters.Service) error) {
			process := cluster.NewProcess(count, log)
			return process.Run, func(ctx context.Context, s clusters.Service) error { return serve(ctx, s, process) }
		},
		Join:  joined,
		Clean: cleaned,
		Verb: func(ctx context.Context, in io.Reader, args ...string) int {
			return sampan(ctx, release, in, out, errOut, args...)
		},
	}
	return cli.Main(ctx, args, cli.Options{
		Version: version,
		In:      in,
		Out:     out,
		Err:     errOut,
		Extra:   clusters.Commands(verbs),
		Release: release,
	})
}

func serve(ctx context.Context, s clusters.Service, process *cluster.Process) error {
	return cluster.Run(ctx, cluster.Options{
		Profile:  s.Profile,
		Settings: s.Settings,
		Flags:    s.Flags,
		Version:  version,
		Process:  process,
		Runtime:  runtimeProgram,
		Report:   s.Report,
		Log:      s.Log,
	})
}

func cleaned(ctx context.Context, p local.Profile, i local.Instance) error {
	return cluster.Clean(ctx, p, i, runtimeProgram)
}

func joined(ctx context.Context, j clusters.Joined) error {
	return cluster.RunMember(ctx, cluster.MemberOptions{
		Profile: j.Profile,
		Member:  j.Member,
		Flags:   j.Flags,
		Version: version,
		Runtime: runtimeProgram,
		Report:  j.Report,
		Log:     j.Log,
	})
}
