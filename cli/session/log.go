package session

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// A Log is the log of a command that serves until it is interrupted. The zero value can be used.
type Log struct{ level slog.Level }

// AddFlag adds the flag --log-level. Its default is shown in the case of the values that the usage lists.
func (l *Log) AddFlag(f *pflag.FlagSet) {
	f.TextVar(&l.level, "log-level", slog.LevelInfo, "minimum `level` of log messages: debug, info, warn or error")
	f.Lookup("log-level").DefValue = "info"
}

// To returns a logger that writes to w records of at least the level of the flag.
func (l *Log) To(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l.level}))
}
