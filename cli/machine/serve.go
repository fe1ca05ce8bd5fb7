package machine

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
)

func serveCommand(o Options) *cobra.Command {
	var (
		s      local.Settings
		report bool
		level  slog.Level
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a cluster in the foreground, logging to standard error",
		Long: "Run a cluster in the foreground until the program is told to stop (SIGINT, SIGTERM), as an init system wants it.\n" +
			"Pods go on running then and are found again at the next start; `sampan down` ends them, too.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r local.Reporter
			if report {
				r = local.NewReporter()
			}
			err := serve(cmd, o, s, r, level)
			if err != nil {
				r.Fail(err)
			}
			return err
		},
	}
	settingsFlags(cmd, &s)
	cmd.Flags().TextVar(&level, "log-level", slog.LevelInfo, "least level of what is logged: debug, info, warn or error")
	cmd.Flags().BoolVar(&report, "report", false, "report the start on file descriptor 3")
	_ = cmd.Flags().MarkHidden("report") // it exists: the line above made it
	return cmd
}

func serve(cmd *cobra.Command, o Options, asked local.Settings, r local.Reporter, level slog.Level) error {
	p, err := profileOf(cmd)
	if err != nil {
		return err
	}
	s, err := p.Settle(asked)
	if err != nil {
		return err
	}
	if err := needRoot(s); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	return o.Serve(cmd.Context(), Service{Profile: p, Settings: s, Report: r, Log: log})
}
