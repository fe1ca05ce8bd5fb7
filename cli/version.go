package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

func versionCommand(g *session.Globals) *cobra.Command {
	only := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the client and server versions",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if g.Output != "" {
				return versions(cmd.Context(), g, only)
			}
			_, _ = fmt.Fprintf(g.Out, "sampan %s\n", g.Version)
			if cfg, err := g.Config(); only || err != nil || cfg.Host == "" {
				return nil // without a cluster there is no more to say
			}
			v, err := serverVersion(cmd.Context(), g)
			if err != nil {
				_, err = fmt.Fprintf(g.Out, "server: none (%v)\n", err)
				return err
			}
			_, err = fmt.Fprintf(g.Out, "server %s\n", described(v))
			return err
		},
	}
	cmd.Flags().BoolVar(&only, "client", false, "print only the client version, without contacting the server")
	return cmd
}

// versions prints what kubectl's version prints with -o.
func versions(ctx context.Context, g *session.Globals, only bool) error {
	if g.Output != "json" && g.Output != "yaml" {
		return exit.Usage("sampan version", fmt.Errorf("-o %s: must be json or yaml", g.Output))
	}
	all := map[string]any{"clientVersion": map[string]any{"gitVersion": g.Version, "goVersion": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}}
	var unknown error
	if !only {
		server, err := serverVersion(ctx, g)
		if unknown = err; err == nil {
			all["serverVersion"] = server
		}
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err == nil && g.Output == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.Out, "%s\n", bytes.TrimSpace(data))
	return errors.Join(err, unknown)
}

// described returns the version of a server in words. Sampan's has the version of its program as the commit.
func described(v version.Info) string {
	if v.GitCommit == "" || !strings.HasSuffix(v.GitVersion, "+sampan") {
		return v.GitVersion
	}
	return fmt.Sprintf("%s (sampan %s)", v.GitVersion, v.GitCommit)
}

func serverVersion(ctx context.Context, g *session.Globals) (info version.Info, err error) {
	s, err := g.Connect()
	if err != nil {
		return info, err
	}
	resp, err := s.Do(ctx, client.RawRequest{Path: "/version"})
	if err != nil {
		return info, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		return info, fmt.Errorf("reading the server's version: %w", err)
	}
	return info, nil
}
