package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyday are the global flags that the help of each command shows, -o only if the command reads it. The others are about connections without a kubeconfig, and are
// shown by `sampan options`.
func everyday() []string {
	return []string{"name", "data-dir", "kubeconfig", "context", "namespace", "output"}
}

// printers are patterns (see package path) of the commands that read -o, without the name of the program. The others refuse it.
func printers() []string {
	return []string{
		"apply", "create", "create *", "delete", "fork", "get", "history", "image inspect", "image list", "replace", "rolling-update", "rollout *", "run", "run *", "scale",
		"scheduler explain", "service trace", "simulate", "snapshot inspect", "snapshot ls", "snapshot save", "status", "token list", "up", "version", "wait",
	}
}

// prints reports whether a command reads -o, or is the root, whose help shows it.
func prints(cmd *cobra.Command) bool {
	_, name, below := strings.Cut(cmd.CommandPath(), " ")
	return !below || slices.ContainsFunc(printers(), func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // the patterns are good
		return ok
	})
}

// checkOutput returns an error if -o is given to a command that does not read it.
func checkOutput(cmd *cobra.Command) error {
	if o := cmd.Flag("output"); o != nil && o.Changed && !prints(cmd) {
		return fmt.Errorf("-o %s: this command prints no objects", o.Value)
	}
	return nil
}

// optionsCommand is kubectl's command of that name.
func optionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the global flags, which all commands have",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "All commands have these flags:\n%s", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

// A section is a part of the usage of a command with many flags: those whose names begin with one of the prefixes.
type section struct {
	title    string
	prefixes []string
}

// sections returns the sections behind the other flags, in their order.
func sections() []section {
	return []section{
		{"Network flags", []string{"advertise-address", "cluster-d", "cni-", "healthz-bind-", "ip-family", "load-balancer-", "metrics-bind-", "node-cidr-mask-", "pod-network", "proxy-", "service-network"}},
		{"Authentication flags", []string{"anonymous-auth", "authentication-", "oidc-", "requestheader-"}},
		{"Audit flags", []string{"audit-"}},
		{"Encryption flags", []string{"encryption-"}},
	}
}

// sectionSize is the number of flags from which on a command has sections.
const sectionSize = 30

// divided returns the flags of a command by sections, first those of none: nothing for a command with few flags.
func divided(cmd *cobra.Command) []*pflag.FlagSet {
	own := cmd.LocalNonPersistentFlags()
	count := 0
	own.VisitAll(func(*pflag.Flag) { count++ })
	if count < sectionSize {
		return nil
	}
	all := []*pflag.FlagSet{pflag.NewFlagSet("Flags", pflag.ContinueOnError)}
	for _, s := range sections() {
		all = append(all, pflag.NewFlagSet(s.title, pflag.ContinueOnError))
	}
	own.VisitAll(func(f *pflag.Flag) {
		at := 1 + slices.IndexFunc(sections(), func(s section) bool {
			return slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(f.Name, p) })
		})
		if !f.Hidden {
			all[at].AddFlag(f)
		}
	})
	return all
}

// wrapWidth is the width of the usage of flags in sections.
const wrapWidth = 100

// shortenUsage leaves most global flags out of the usage of commands, and shows the flags of those with many in sections.
func shortenUsage(root *cobra.Command) {
	usual := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		var rest []*pflag.Flag
		parts := divided(cmd)
		for _, part := range parts {
			part.VisitAll(func(f *pflag.Flag) { rest = append(rest, f) })
		}
		root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && (!slices.Contains(everyday(), f.Name) || f.Name == "output" && !prints(cmd)) {
				rest = append(rest, f)
			}
		})
		hide := func(hidden bool) {
			for _, f := range rest {
				f.Hidden = hidden
			}
		}
		hide(true)
		err := usual(cmd)
		hide(false)
		for _, part := range parts {
			if part.HasFlags() {
				_, _ = fmt.Fprintf(cmd.OutOrStderr(), "\n%s:\n%s", part.Name(), part.FlagUsagesWrapped(wrapWidth))
			}
		}
		_, _ = fmt.Fprintf(cmd.OutOrStderr(), "\nUse \"%s options\" for all global flags.\n", root.Name())
		return err
	})
}
