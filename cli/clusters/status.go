package clusters

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/cluster/local"
)

func statusCommand(Options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of a cluster, or of all running clusters of this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := describe
			switch o := flag(cmd, "output"); o {
			case "":
			case "json":
				show = describeJSON
			default:
				return fmt.Errorf("-o %s: must be json or not set", o)
			}
			if all {
				p, err := named(cmd)
				if err != nil {
					return err
				}
				is, err := p.Instances()
				if err != nil {
					return err
				}
				for n, i := range is {
					if n > 0 && flag(cmd, "output") == "" {
						_, _ = fmt.Fprintln(cmd.OutOrStdout())
					}
					show(cmd, p.Of(i), i)
				}
				return nil
			}
			p, i, running, err := found(cmd)
			if err != nil {
				return err
			}
			if !running {
				return fmt.Errorf("%w%s", stopped(cmd, p), others(p))
			}
			show(cmd, p, i)
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show every running cluster of this machine")
	return cmd
}

// stopped returns the error about a cluster, or a node of another machine's cluster, that is not running.
func stopped(cmd *cobra.Command, p local.Profile) error {
	m, member, err := p.Member()
	switch {
	case err != nil:
		return err
	case member:
		return fmt.Errorf("node %s of the cluster at %s is not running; start it with %s", m.Settings.NodeName, m.Server, hint(cmd, "join"))
	}
	return fmt.Errorf("cluster %s is not running; start it with %s", p.Name, hint(cmd, "up"))
}

// others returns a line with the clusters that run on this machine, for the end of an error, or "" if none does.
func others(p local.Profile) string {
	running, err := p.Instances()
	if err != nil || len(running) == 0 {
		return "" // the error is about the cluster that does not run
	}
	var names []string
	for _, i := range running {
		names = append(names, i.Name)
	}
	return fmt.Sprintf("\nrunning on this machine: %s; choose one with --name, or see all with `sampan status --all`", strings.Join(names, ", "))
}

func describe(cmd *cobra.Command, p local.Profile, i local.Instance) {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s:\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("Cluster", "%s", i.Name)
	state := "running"
	if i.Starting() {
		state = "starting"
	}
	row("State", "%s for %v", state, time.Since(i.Started).Round(time.Second))
	row("Version", "%s", i.Version)
	row("API server", "%s", i.Server)
	row("Nodes", "%s", nodes(i.Nodes))
	if !i.Simulated {
		row("Pod network", "%s", i.Runtime.PodNetwork)
	}
	if i.Runtime.Endpoint != "" {
		row("Container runtime", "%s", i.Runtime.Endpoint)
	}
	row("Service network", "%s", i.ServiceNetwork)
	row("Data", "%s%s", i.DataDir, space(i.DataDir))
	if mem, err := i.Memory(); err == nil {
		row("Memory", "%.1f MiB (proportional set size)", float64(mem)/(1<<20))
	}
	row("Processes", "%s", processes(i))
	if !i.Starting() {
		bad, err := conditions(cmd.Context(), p)
		for _, line := range conditionLines(bad, err) {
			row("Warning", "%s", line)
		}
	}
	_ = w.Flush()
}

// space returns how full the file system of a directory is, as the end of a line, or "" if that is not known.
func space(dir string) string {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil || fs.Bsize <= 0 {
		return ""
	}
	gib := func(blocks uint64) float64 { return float64(blocks) * float64(fs.Bsize) / (1 << 30) }
	return fmt.Sprintf(" (%.1f of %.1f GiB free)", gib(fs.Bavail), gib(fs.Blocks))
}

// describeJSON prints what the cluster wrote down about itself, its memory, and the bad conditions of its nodes, on
// one line.
func describeJSON(cmd *cobra.Command, p local.Profile, i local.Instance) {
	memory, _ := i.Memory() // 0: it cannot be read
	var bad []nodeCondition
	if !i.Starting() {
		var err error
		if bad, err = conditions(cmd.Context(), p); err != nil {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %v\n", err)
		}
	}
	_ = json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
		local.Instance
		Starting      bool            `json:"starting"`
		MemoryBytes   int64           `json:"memoryBytes,omitempty"` // proportional set size
		BadConditions []nodeCondition `json:"badConditions,omitempty"`
	}{i, i.Starting(), memory, bad})
}

// nodes lists names, or says how many there are if they would fill a screen.
func nodes(names []string) string {
	const most = 12
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%d, %s to %s", len(names), names[0], names[len(names)-1])
}

func processes(i local.Instance) string {
	s := fmt.Sprintf("%d sampan", i.Process.PID)
	if i.Runtime.PID != 0 {
		s += fmt.Sprintf(", %d sampan-runtime", i.Runtime.PID)
	}
	return s
}

// noCredentials returns the error about a data directory without an administrator's kubeconfig.
func noCredentials(cmd *cobra.Command, p local.Profile) error {
	m, member, err := p.Member()
	switch {
	case err != nil:
		return err
	case member:
		return fmt.Errorf("this machine is the node %s of the cluster at %s: run `sampan kubeconfig` on the machine of that API server", m.Settings.NodeName, m.Server)
	}
	return fmt.Errorf("cluster %s has no credentials in %s because it was never started; start it with %s", p.Name, p.DataDir, hint(cmd, "up"))
}

func kubeconfigCommand() *cobra.Command {
	var merge bool
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a cluster's administrator kubeconfig, or merge it into yours",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, _, _, err := found(cmd)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(p.Kubeconfig())
			if errors.Is(err, fs.ErrNotExist) {
				return noCredentials(cmd, p)
			}
			if err != nil {
				return fmt.Errorf("reading the credentials of cluster %s: %w", p.Name, err)
			}
			if !merge {
				_, err := cmd.OutOrStdout().Write(data)
				return err
			}
			file, err := p.Merge(cmd.Context(), flag(cmd, "kubeconfig"))
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "context %q in %s\n", p.Context(), file)
			return nil
		},
	}
	cmd.Flags().BoolVar(&merge, "merge", false, "merge the context into the kubeconfig and make it the current context")
	return cmd
}
