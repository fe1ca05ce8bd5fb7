package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

func versionCommand(g *session.Globals) *cobra.Command {
	only := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program and of the server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, _ = fmt.Fprintf(g.Out, "sampan %s\n", g.Version)
			if cfg, err := g.Config(); only || err != nil || cfg.Host == "" {
				return nil //nolint:nilerr // without a cluster there is no more to say
			}
			v, err := serverVersion(cmd.Context(), g)
			if err != nil {
				_, err = fmt.Fprintf(g.Out, "server: none (%v)\n", err)
				return err
			}
			_, err = fmt.Fprintf(g.Out, "server %s\n", v)
			return err
		},
	}
	cmd.Flags().BoolVar(&only, "client", false, "do not ask the server")
	return cmd
}

func serverVersion(ctx context.Context, g *session.Globals) (string, error) {
	s, err := g.Connect()
	if err != nil {
		return "", err
	}
	resp, err := s.Do(ctx, client.RawRequest{Path: "/version"})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var info version.Info
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		return "", fmt.Errorf("reading the server's version: %w", err)
	}
	return info.GitVersion, nil
}
