package session_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cli/session"
)

func TestLogHasTheLevelOfTheFlag(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{{nil, "INFO WARN"}, {[]string{"--log-level=warn"}, "WARN"}, {[]string{"--log-level=DEBUG"}, "DEBUG INFO WARN"}} {
		var l session.Log
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		l.AddFlag(f)
		if err := f.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := l.To(&out)
		log.Debug("a")
		log.Info("a")
		log.Warn("a")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, "level=")
			level, _, _ := strings.Cut(rest, " ")
			got = append(got, level)
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%v: levels %q, want %q", tt.args, text, tt.want)
		}
		if usage := f.FlagUsages(); !strings.Contains(usage, "(default info)") {
			t.Errorf("usage %q, want the default info", usage)
		}
	}
}
