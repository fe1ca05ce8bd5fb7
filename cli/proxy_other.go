//go:build !linux || portable

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/session"
)

// proxyCommand returns a command that refuses to run.
func proxyCommand(*session.Globals) *cobra.Command {
	return &cobra.Command{
		Use:                "proxy",
		Short:              "Run only the service proxy of this node, for any cluster (on Linux)",
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return errors.New("the service proxy needs Linux") },
	}
}
