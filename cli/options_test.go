package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

// TestOutputIsRefusedWhereItHasNoEffect gives -o to each command that prints no objects.
func TestOutputIsRefusedWhereItHasNoEffect(t *testing.T) {
	var refuse []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && !prints(cmd) {
			refuse = append(refuse, strings.TrimPrefix(cmd.CommandPath(), "sampan "))
		}
		if _, name, _ := strings.Cut(cmd.CommandPath(), " "); slices.Contains(printers(), name) && !strings.Contains(cmd.UsageString(), "--output") {
			t.Errorf("the help of %s does not show --output", name)
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(New(Options{}))
	for _, want := range []string{"logs", "token create", "image remove", "cordon", "exec", "completion bash"} {
		if !slices.Contains(refuse, want) {
			t.Errorf("%s does not refuse -o", want)
		}
	}
	for _, name := range refuse {
		root := New(Options{})
		cmd, _, err := root.Find(strings.Fields(name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(cmd.UsageString(), "--output") {
			t.Errorf("the help of %s shows --output", name)
		}
		if err := root.PersistentFlags().Set("output", "json"); err != nil {
			t.Fatal(err)
		}
		if err := checkOutput(cmd); err == nil || err.Error() != "-o json: this command prints no objects" {
			t.Errorf("%s: %v", name, err)
		}
		if cmd.Args == nil {
			t.Errorf("%s checks no arguments, and so takes -o", name)
		}
	}
}

// TestExamplesCanBeParsed parses the flags in the examples of all commands.
func TestExamplesCanBeParsed(t *testing.T) {
	found := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " # ")
			_, line, ok := strings.Cut(line, "sampan ")
			if !ok || strings.ContainsAny(line, ";>'\"") { // a shell's
				continue
			}
			root := New(Options{})
			called, rest, err := root.Find(strings.Fields(line))
			if err == nil && called != root {
				err = called.ParseFlags(rest)
			}
			if err != nil {
				t.Errorf("the example %q of %s: %v", line, cmd.CommandPath(), err)
			}
			found++
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(New(Options{}))
	if found < 20 {
		t.Errorf("%d examples were found", found)
	}
}
