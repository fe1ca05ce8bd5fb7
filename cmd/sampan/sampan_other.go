//go:build !unix

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli"
)

// sampan runs the command line with the given arguments and returns its exit
// code. It has the commands for objects of any cluster, and refuses those for clusters of this machine.
func sampan(ctx context.Context, release func(), in io.Reader, out, errOut io.Writer, args ...string) int {
	return cli.Main(ctx, args, cli.Options{
		Version: version,
		In:      in,
		Out:     out,
		Err:     errOut,
		Extra:   refused("up", "down", "status", "kubeconfig", "serve", "certs", "demo", "encryption", "join", "agent", "leave"),
		Release: release,
	})
}

// refused returns commands that only fail.
func refused(names ...string) (all []*cobra.Command) {
	for _, name := range names {
		all = append(all, &cobra.Command{
			Use: name, Short: "Not on this system", Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return errors.New("clusters run on Linux, and with --simulated-nodes on macOS; on this system, sampan works with a cluster of a kubeconfig")
			},
		})
	}
	return all
}

// standIn returns nil: the program stands in for no other one.
func standIn(string) func(ctx context.Context, args []string, out, errOut io.Writer) int { return nil }
