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
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cluster/local"
)

func statusCommand(o Options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of a cluster, or list all clusters of this machine",
		Long: "Show whether a cluster of this machine runs, its API server, networks, data directory, memory and processes, and the\n" +
			"conditions of its nodes that keep new pods away. If it does not run, an error names the other clusters of this machine.",
		Example: "  sampan status\n  sampan status --all\n  sampan status --name=test -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := describe
			printed, err := asObject(cmd)
			if err != nil {
				return err
			}
			if printed {
				show = printObject
			}
			if all {
				p, err := named(cmd)
				if err != nil {
					return err
				}
				clusters, err := p.Clusters()
				for n, c := range clusters {
					if n > 0 && !printed {
						_, _ = fmt.Fprintln(cmd.OutOrStdout())
					}
					show(cmd, c)
				}
				showForeign(cmd, printed, len(clusters) > 0)
				return listed(cmd, clusters, err)
			}
			p, i, running, err := found(cmd)
			if err != nil {
				return err
			}
			hintOther(cmd, p)
			if !running {
				if theirs := p.OtherUsers(); theirs != "" && !holds(p) {
					return fmt.Errorf("%s is not running; %s", subject(p), theirs)
				}
				return fmt.Errorf("%w%s", stopped(cmd, p), others(p))
			}
			if differs := versionDiffers(o, p, i); differs != "" && !i.Member {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", differs)
			}
			if err := damaged(p, i); err != nil {
				return err
			}
			show(cmd, local.Found{Profile: p, Instance: i, Running: true})
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show every cluster of this machine: those of this user, also the stopped ones with their data directories, and the running ones of other users")
	return cmd
}

// listed prints the error about clusters that could not be listed as warnings, if others could: the damaged record of
// one says nothing about the others.
func listed(cmd *cobra.Command, clusters []local.Found, err error) error {
	if err == nil || len(clusters) == 0 {
		return err
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nWarning: "))
	return nil
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
	if e, err := p.Expiry(); err == nil && e.Expired(time.Now()) {
		return p.CheckExpired(local.Settings{Expiry: e}, 0, time.Now())
	}
	return fmt.Errorf("cluster %s is not running; start it with %s", p.Name, hint(cmd, "up"))
}

// others returns a line with the other clusters of this machine, for the end of an error, or "" if there is none.
func others(p local.Profile) string {
	clusters, _ := p.Clusters() // the error is about the cluster that does not run
	var names []string
	for _, c := range clusters {
		switch {
		case c.Running:
			names = append(names, c.Name)
		case c.Name != p.Name:
			names = append(names, c.Name+" (stopped)")
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("\non this machine: %s; choose one with --name, or see all with `sampan status --all`", strings.Join(names, ", "))
}

// state returns the state of a cluster in a word.
func state(c local.Found) string {
	switch {
	case !c.Running:
		return "stopped"
	case c.Instance.Damage != "":
		return "running"
	case c.Instance.Starting():
		return "starting"
	}
	return "running"
}

func describe(cmd *cobra.Command, c local.Found) {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s:\t%s\n", name, fmt.Sprintf(format, args...))
	}
	defer func() { _ = w.Flush() }()
	row("Cluster", "%s", c.Name)
	i := c.Instance
	if !c.Running {
		row("State", "%s", state(c))
		if m, member, err := c.Member(); err == nil && member {
			row("Node", "%s of the cluster at %s", m.Settings.NodeName, m.Server)
		}
		if e, err := c.Expiry(); err == nil && e.Expired(time.Now()) {
			row("Expired", "at %s, and is not removed because it did not run", e.At.Format(time.RFC3339))
		}
		row("Data", "%s%s", c.DataDir, dataNote(c.Profile))
		return
	}
	if i.Damage != "" {
		row("State", "%s", state(c))
		row("Data", "%s%s", i.DataDir, space(i.DataDir))
		row("Logs", "%s", logs(c.Profile))
		row("Processes", "%s", processes(i))
		row("Warning", "%v", damaged(c.Profile, i))
		return
	}
	row("State", "%s for %v", state(c), time.Since(i.Started).Round(time.Second))
	if !i.Expires.IsZero() {
		row("Expires", "in %v, and is removed then", max(0, time.Until(i.Expires)).Round(time.Second))
	}
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
	if saves, err := savesOf(cmd.Context(), c.Profile, i); err != nil {
		row("Snapshots", "%s", printable(err.Error()))
	} else if saves != nil {
		row("Snapshots", "%s", saves)
	}
	row("Logs", "%s", logs(c.Profile))
	if mem, err := i.Memory(); err == nil {
		row("Memory", "%.1f MiB (proportional set size)", float64(mem)/(1<<20))
	}
	row("Processes", "%s", processes(i))
	for _, w := range i.Warnings {
		row("Warning", "%s", printable(w))
	}
	if !i.Starting() {
		if why := refusedWrites(cmd.Context(), c.Profile); why != "" {
			row("Warning", "the server refuses writes: %s", why)
		}
		bad, err := conditions(cmd.Context(), c.Profile)
		for _, line := range conditionLines(bad, err) {
			row("Warning", "%s", line)
		}
	}
}

// logs returns the log files that a cluster has. One that runs in the foreground logs to standard error.
func logs(p local.Profile) string {
	var files []string
	for _, file := range []string{p.Log(), p.RuntimeLog()} {
		if _, err := os.Stat(file); err == nil {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return "standard error of the process"
	}
	return strings.Join(files, ", ")
}

// showForeign prints the running clusters of other users.
func showForeign(cmd *cobra.Command, printed, after bool) {
	for n, f := range local.OfOtherUsers() {
		if printed {
			_ = encode(cmd, struct {
				local.Foreign
				State string `json:"state"`
			}{f, "running"})
			continue
		}
		out := cmd.OutOrStdout()
		if after || n > 0 {
			_, _ = fmt.Fprintln(out)
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(w, "Cluster:\t%s\nState:\trunning\nUser:\t%s\n", f.Name, f.User)
		if f.DataDir != "" {
			_, _ = fmt.Fprintf(w, "Data:\t%s\n", f.DataDir)
		}
		_, _ = fmt.Fprintf(w, "Processes:\t%d sampan\n", f.PID)
		_ = w.Flush()
	}
}

// dataNote returns what to know about the data directory of a stopped cluster, as the end of a line.
func dataNote(p local.Profile) string {
	if holds, err := p.Holds(); !holds || err != nil {
		return " (has no data of a cluster now: is its disk mounted?)"
	}
	return space(p.DataDir)
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

// asObject reports whether -o wants an object instead of words. It is an error if it wants something else.
func asObject(cmd *cobra.Command) (bool, error) {
	switch o := flag(cmd, "output"); o {
	case "":
		return false, nil
	case "json", "yaml":
		return true, nil
	default:
		return false, fmt.Errorf("-o %s: must be json, yaml or not set", o)
	}
}

// encode prints an object as -o wants it: JSON on a line of its own, or a document of YAML.
func encode(cmd *cobra.Command, v any) error {
	if flag(cmd, "output") == "json" {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
	}
	text, err := yaml.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "---\n%s", text)
	}
	return err
}

// printObject prints the cluster's record of itself, its memory, and the bad conditions of its nodes; of a
// stopped cluster its name and data directory.
func printObject(cmd *cobra.Command, c local.Found) {
	if !c.Running {
		object := map[string]string{"name": c.Name, "dataDir": c.DataDir, "state": state(c)}
		if e, err := c.Expiry(); err == nil && !e.At.IsZero() {
			object["expires"] = e.At.Format(time.RFC3339)
		}
		_ = encode(cmd, object)
		return
	}
	i := c.Instance
	if err := damaged(c.Profile, i); err != nil {
		_ = encode(cmd, map[string]string{"name": c.Name, "dataDir": i.DataDir, "state": state(c)})
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %v\n", err)
		return
	}
	memory, _ := i.Memory() // 0: it cannot be read
	var bad []nodeCondition
	refused := ""
	if !i.Starting() {
		refused = refusedWrites(cmd.Context(), c.Profile)
		var err error
		if bad, err = conditions(cmd.Context(), c.Profile); err != nil {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %v\n", err)
		}
	}
	scheduled, err := savesOf(cmd.Context(), c.Profile, i)
	if err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %v\n", err)
	}
	_ = encode(cmd, struct {
		local.Instance
		State         string          `json:"state"`
		Starting      bool            `json:"starting"`
		MemoryBytes   int64           `json:"memoryBytes,omitempty"` // proportional set size
		BadConditions []nodeCondition `json:"badConditions,omitempty"`
		RefusedWrites string          `json:"refusedWrites,omitempty"` // why the server refuses writes
		Snapshots     *saves          `json:"snapshots,omitempty"`     // that the cluster saves by itself
	}{i, state(c), i.Starting(), memory, bad, refused, scheduled})
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
	if i.Shared {
		s += " (with other clusters)"
	}
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
		Long: "Print the kubeconfig of the administrator of a cluster on this machine. With --merge, write it as a context into your\n" +
			"kubeconfig, which `sampan up` has done already. It has the address 127.0.0.1; for another machine, pass the URL with\n" +
			"--server. The cluster must have been started with that address (`sampan up --advertise-address`).",
		Example: "  sampan kubeconfig > admin.kubeconfig\n  sampan kubeconfig --name=test --merge\n  sampan kubeconfig --server=https://192.0.2.1:6443 > admin.kubeconfig",
		Args:    cobra.NoArgs,
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
			server := flag(cmd, "server")
			if server != "" {
				if merge {
					return errors.New("--server cannot be used with --merge: the context of the kubeconfig is for this machine")
				}
				if data, err = local.WithServer(data, server); err != nil {
					return err
				}
				if why := uncertified(cmd.Context(), p, data); why != "" {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", why)
				}
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
