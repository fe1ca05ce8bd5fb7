package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestUsageLeavesOutSeldomFlags compares the help of commands with the list of the global flags.
func TestUsageLeavesOutSeldomFlags(t *testing.T) {
	run := func(args ...string) string {
		var out bytes.Buffer
		if code := Main(t.Context(), args, Options{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 {
			t.Errorf("%v: exit code %d\n%s", args, code, &out)
		}
		return out.String()
	}
	options := run("options")
	for _, help := range []string{run("--help"), run("get", "--help"), run("help", "rollout", "status")} {
		if !strings.Contains(help, `Use "sampan options" for all global flags.`) {
			t.Errorf("no word of the options:\n%s", help)
		}
		New(Options{}).PersistentFlags().VisitAll(func(f *pflag.Flag) {
			flag := "--" + f.Name + " "
			if !strings.Contains(options, flag) {
				t.Errorf("`sampan options` has no %s", flag)
			}
			if shown := strings.Contains(help, flag); shown != slices.Contains(everyday(), f.Name) {
				t.Errorf("the help shows %s: %v:\n%s", flag, shown, help)
			}
		})
	}
	// A flag that a help does not show is still one of its command.
	if out := run("get", "--as=someone", "--help"); !strings.Contains(out, "Print objects") {
		t.Errorf("got\n%s", out)
	}
	if out := run("dns", "--help"); !strings.Contains(out, "debug, info, warn or error (default info)") {
		t.Errorf("the level has another default:\n%s", out)
	}
}
