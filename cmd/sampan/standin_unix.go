//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/sampan-io/sampan/cluster"
	"github.com/sampan-io/sampan/cluster/standin"
)

// standIn returns the function that runs a program of Kubernetes under whose name sampan was started, if it stands in for
// one: it takes the arguments of that program and returns its exit code.
func standIn(name string) func(ctx context.Context, args []string, out, errOut io.Writer) int {
	switch name {
	case "kube-apiserver":
		return named(name, func(ctx context.Context, args []string, out, errOut io.Writer) error {
			s, err := standin.ParseServer(args, cluster.ServerVersion, out)
			if err != nil {
				return err
			}
			return cluster.RunServer(ctx, s, version, slog.New(slog.NewTextHandler(errOut, nil)))
		})
	case "etcd":
		return named(name, func(ctx context.Context, args []string, out, _ io.Writer) error {
			return standin.RunEtcd(ctx, args, out)
		})
	}
	return nil
}

// named makes an exit code of an error, which it prints after the name of the program.
func named(name string, run func(context.Context, []string, io.Writer, io.Writer) error) func(context.Context, []string, io.Writer, io.Writer) int {
	return func(ctx context.Context, args []string, out, errOut io.Writer) int {
		err := run(ctx, args, out, errOut)
		if err == nil || standin.IsHelp(err) {
			return 0
		}
		_, _ = fmt.Fprintf(errOut, "%s: %v\n", name, err)
		return 1
	}
}
