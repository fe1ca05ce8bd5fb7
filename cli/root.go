package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sampan-io/sampan/cli/completion"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/images"
	"github.com/sampan-io/sampan/cli/nodes"
	"github.com/sampan-io/sampan/cli/objects"
	"github.com/sampan-io/sampan/cli/past"
	"github.com/sampan-io/sampan/cli/pods"
	"github.com/sampan-io/sampan/cli/rollouts"
	"github.com/sampan-io/sampan/cli/scheduling"
	"github.com/sampan-io/sampan/cli/services"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/simulation"
	"github.com/sampan-io/sampan/cli/tokens"
	"github.com/sampan-io/sampan/cli/waiting"
	"github.com/sampan-io/sampan/internal/terminal"
)

// Options configures the command line. The zero value works.
type Options struct {
	Version string // of this program; empty means "unknown"

	In       io.Reader // nil means os.Stdin
	Out, Err io.Writer // nil means os.Stdout, os.Stderr; control characters in text of others do not reach them

	// Terminal is the terminal that In reads from; nil if it is none. Main finds it by itself.
	Terminal *os.File

	// Extra are further commands, which get the global flags.
	Extra []*cobra.Command

	// Release is called when a wait has been interrupted, so that the next
	// interruption ends the program at once. It may be nil.
	Release func()
}

// New returns the root of the command tree. Each call returns a new one.
func New(o Options) *cobra.Command {
	root, _ := tree(o)
	return root
}

// tree returns the root of the command tree, and its global flags.
func tree(o Options) (*cobra.Command, *session.Globals) {
	if o.In == nil {
		o.In = os.Stdin
	}
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Err == nil {
		o.Err = os.Stderr
	}
	o.Out, o.Err = terminal.NewWriter(o.Out), terminal.NewWriter(o.Err)
	if o.Version == "" {
		o.Version = "unknown"
	}
	g := &session.Globals{Streams: session.Streams{In: o.In, Out: o.Out, Err: o.Err, Terminal: o.Terminal, Release: o.Release}, Version: o.Version}
	root := &cobra.Command{
		Use:   "sampan",
		Short: "A Kubernetes cluster in one program, and a client for any cluster",
		Long: "Sampan runs a Kubernetes cluster in one program, and is a client for any cluster.\n\n" +
			"Its commands can wait: they print what they wait for, return as soon as it is true,\n" +
			"and distinguish failure from timeout by their exit code.",
		Example: "  sampan up                                   # start a cluster; as root, or with --simulated-nodes=1\n" +
			"  sampan run web --image=nginx --wait         # run a pod, and wait until it is ready\n" +
			"  sampan get pods -A\n" +
			"  sampan down --purge                         # stop the cluster, and remove its data",
		Version:       o.Version, // for --version
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	root.SetFlagErrorFunc(flagError)
	g.AddFlags(root.PersistentFlags())
	run := objects.Run(g, pods.Foreground(g))
	run.AddCommand(pods.RunJob(g))
	simulate := simulation.Simulate(g)
	simulate.AddCommand(nodes.Cut(g), nodes.Restore(g))
	root.AddCommand(
		objects.Create(g), objects.Apply(g), run, objects.Replace(g), objects.Get(g), objects.Delete(g), pods.Logs(g), pods.Exec(g),
		pods.Attach(g), pods.PortForward(g), pods.Copy(g), pods.Debug(g), pods.Top(g),
		objects.Scale(g), past.History(g), past.Diff(g), waiting.Command(g), rollouts.RollingUpdate(g), rollouts.Rollout(g), nodes.Cordon(g), nodes.Uncordon(g), nodes.Drain(g),
		images.Command(g), services.Command(g), simulate, scheduling.Command(g), controllersCommand(g), tokens.Command(g), dnsCommand(g), proxyCommand(g), optionsCommand(), versionCommand(g),
	)
	root.AddCommand(o.Extra...)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	completion.Add(root, g)
	strict(root)
	shortenUsage(root)
	wrapArgs(root)
	return root, g
}

// flagError returns the usage error for a flag that cannot be used. If the words before it are those of a verb that does
// not exist, that is what is wrong: the flag may well be one of the verb that was meant.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 && cmd.Args != nil {
		if wrong := cmd.Args(cmd, args); wrong != nil {
			return exit.Usage(cmd.CommandPath(), wrong)
		}
	}
	return exit.Usage(cmd.CommandPath(), exit.OfFlag(err))
}

// strict has the verbs that cobra adds refuse what they do not know, instead of printing
// help about something else as if that had been asked for.
func strict(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return fmt.Errorf("unknown help topic %q", strings.Join(args, " "))
				}
				return nil
			}
		}
	}
}

// wrapArgs makes wrong arguments usage errors, and -o where it has no effect.
func wrapArgs(c *cobra.Command) {
	const distance = 2                       // letters that differ, as for kubectl
	c.SuggestionsMinimumDistance = distance  // cobra itself suggests commands only where it checks the arguments
	if c.HasSubCommands() && !c.Runnable() { // cobra prints the help of such a command whatever its arguments
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		if c.Args == nil {
			c.Args = cobra.NoArgs
		}
	}
	check := c.Args
	if check == nil && !c.HasSubCommands() {
		check = cobra.ArbitraryArgs // as for cobra
	}
	if check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := suggest(cmd, args, check(cmd, args))
			if err == nil {
				err = checkOutput(cmd)
			}
			if err == nil {
				return nil
			}
			return exit.Usage(cmd.CommandPath(), err)
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// suggest adds the names of similar commands to the error about a word that is none, in kubectl's words.
func suggest(cmd *cobra.Command, args []string, err error) error {
	if err == nil || len(args) == 0 {
		return err
	}
	if !cmd.HasParent() && slices.Contains(kubectlVerbs(), args[0]) {
		return fmt.Errorf("%w\n\nIt is a command of kubectl, which works with the same kubeconfig: kubectl %s", err, args[0])
	}
	similar := slices.DeleteFunc(cmd.SuggestionsFor(args[0]), func(name string) bool { return farFrom(name, args[0]) })
	if len(similar) == 0 {
		return err
	}
	return fmt.Errorf("%w\n\nDid you mean this?\n\t%s", err, strings.Join(similar, "\n\t"))
}

// farFrom reports whether a name is too different from a short word to be suggested for it: two of its three letters differ.
func farFrom(name, word string) bool {
	const short = 4
	return len(word) < short && name[0] != word[0] && !strings.HasPrefix(name, word)
}

// kubectlVerbs are the commands that kubectl has and this program has not.
func kubectlVerbs() []string {
	return []string{
		"alpha", "annotate", "api-resources", "api-versions", "auth", "autoscale", "certificate", "cluster-info", "config", "describe", "edit",
		"events", "explain", "expose", "kuberc", "kustomize", "label", "patch", "plugin", "set", "taint",
	}
}

// Main runs one command line, args without the program's name, and returns the
// exit code. The end of ctx is an interruption.
func Main(ctx context.Context, args []string, o Options) int {
	if o.In == nil {
		o.In = os.Stdin
	}
	if f, ok := o.In.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		o.Terminal = f
	}
	o.In = untilOver(ctx, o.In)
	root, g := tree(o)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exit.Done
	}
	var ended *exit.Error
	if errors.As(err, &ended) && ended.Err == nil {
		return ended.Code
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err())) {
		return exit.Interrupted
	}
	w := root.ErrOrStderr()
	for _, line := range exit.Explain(err, g.ClusterFlag) {
		_, _ = fmt.Fprintln(w, line)
	}
	if usage, ok := errors.AsType[*exit.UsageError](err); ok {
		_, _ = fmt.Fprintf(w, "usage: see '%s --help'\n", usage.Command)
	}
	return exit.Code(err)
}
