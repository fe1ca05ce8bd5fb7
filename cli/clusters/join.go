package clusters

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/join"
	"github.com/sampan-io/sampan/cluster/local"
)

// A Joined is what `agent` shall run: this machine as a node of a cluster.
type Joined struct {
	Profile local.Profile
	Member  local.Member
	Report  local.Reporter
	Log     *slog.Logger
	Flags   map[string]string // of the command line, with their values
}

// joining are the flags of join.
type joining struct {
	token    string
	hashes   []string
	settings local.Settings
	nodeIP   string
}

func joinCommand(o Options) *cobra.Command {
	var j joining
	cmd := &cobra.Command{
		Use:   "join [HOST:PORT]",
		Short: "Make this machine a node of a cluster that runs on another machine",
		Long: "Make this machine a node of the cluster whose API server listens at HOST:PORT, and wait until the node is Ready. The\n" +
			"cluster must have been started with --advertise-address; there, `sampan token create --print-join-command` prints the\n" +
			"command for this machine. The machines must share a link: pods reach each other by routes over it.\n\n" +
			"A node that was stopped is started again without a token, and with HOST:PORT and other flags only if they have changed.\n" +
			"`sampan down` stops the node and its pods, and `sampan leave` removes everything that this command has made.",
		Example: "  sampan join 192.0.2.1:6443 --token=abcdef.0123456789abcdef --ca-cert-hash=sha256:1234…",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return j.run(cmd, o, args)
		},
	}
	f := cmd.Flags()
	// The global flag of this name is a bearer token of clients; a bootstrap token is one, too.
	f.StringVar(&j.token, "token", "", "bootstrap token, as \"sampan token create\" prints it")
	f.StringSliceVar(&j.hashes, "ca-cert-hash", nil, "hash of the cluster's certificate authority, sha256:HEX; may be repeated")
	f.StringVar(&j.settings.NodeName, "node-name", "", "name of the node (default: the name of this host)")
	f.StringVar(&j.nodeIP, "node-ip", "", "address of this machine at which the others reach it, or one of each IP family separated by a comma (default: the one that leads to HOST)")
	containerFlags(f, &j.settings)
	f.Var(pathFlag{to: &j.settings.KubeletConfig, none: local.NoKubeletConfig}, "kubelet-config", "file with a KubeletConfiguration for the node, read at each start; \"none\" restores the default")
	f.StringVar((*string)(&j.settings.ProxyMode), "proxy-mode", "", "default proxy mode of Services: kernel or userspace (default kernel)")
	f.StringVar(&j.settings.DNSUpstream, "cluster-dns-upstream", "", "comma-separated name servers for names outside the cluster, or none (default: those of this host)")
	imageFlags(f, &j.settings.Images)
	return cmd
}

func (j *joining) run(cmd *cobra.Command, o Options, args []string) error {
	p, i, running, err := found(cmd)
	if err != nil {
		return err
	}
	if p.HasCluster() {
		return fmt.Errorf("%s has the data of the cluster %s, which runs on this machine; pass another name with --name, or remove that cluster with %s", p.DataDir, p.Name, hint(cmd, "down --purge"))
	}
	m, member, err := p.Member()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	switch {
	case running && len(args)+cmd.Flags().NFlag() > countFlags(cmd, "name", "data-dir"):
		return fmt.Errorf("node %s is running, so nothing of this command would be applied; stop it first, with its pods: %s", m.Settings.NodeName, hint(cmd, "down"))
	case running:
		_, _ = fmt.Fprintf(out, "node %s is already running\n", m.Settings.NodeName)
		return nil
	case member && countFlags(cmd, "token", "ca-cert-hash") == 0:
		if m, err = j.again(m, p, args); err != nil {
			return err
		}
	case member:
		return fmt.Errorf("this machine is already the node %s of the cluster at %s; %s starts it again, without a token also with another address of its API server, and %s removes it", m.Settings.NodeName, m.Server, hint(cmd, "join"), hint(cmd, "leave"))
	case !member && len(args) == 0:
		return errors.New("this machine is not a node of a cluster yet: pass HOST:PORT of its API server, --token and --ca-cert-hash")
	}
	if err := checkSurroundings(local.Settings{}, ""); err != nil {
		return err
	}
	if err := checkDataDir(cmd, p); err != nil {
		return err
	}
	if err := warnOfOtherData(cmd, p); err != nil {
		return err
	}
	if member {
		err = checkPort(m.Server, cmp.Or(j.nodeIP, m.NodeIP), kubeletPort)
	} else {
		m, err = j.join(cmd, p, args[0])
	}
	if err != nil {
		return err
	}
	if err := p.Record(); err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %v; when the node is stopped, commands for it need --data-dir\n", err)
	}
	if i, err = startMember(cmd, o, p); err != nil {
		return err
	}
	warnOfStart(cmd, i)
	after := i.ReadyAfter.Round(time.Millisecond)
	if dir := m.Settings.CNIConfDir; dir != "" && !local.HasCNI(dir) {
		_, _ = fmt.Fprintf(out, "node %s has joined after %v, and will be Ready when a network add-on has written its configuration to %s\ncluster %s\n", m.Settings.NodeName, after, dir, m.Server)
		return nil
	}
	warnOfConditions(cmd, p)
	_, _ = fmt.Fprintf(out, "node %s is Ready after %v\ncluster %s\n", m.Settings.NodeName, after, m.Server)
	return nil
}

// kubeletPort is where the API server reaches the node agent.
const kubeletPort = 10250

// checkPort returns an error if a program on this machine has the port of the node agent, before the cluster has a Node for a node
// that cannot start. server is the API server, as HOST:PORT or a URL, and nodeIP the addresses of --node-ip, or "".
func checkPort(server, nodeIP string, port int) error {
	addresses := strings.FieldsFunc(nodeIP, func(r rune) bool { return r == ',' })
	if len(addresses) == 0 {
		// A UDP socket sends nothing when it is connected: the kernel only chooses a route.
		conn, err := net.Dial("udp", strings.TrimPrefix(server, "https://")) //nolint:noctx // it does not block for the network
		if err != nil {
			return nil // join reports the fault of the address
		}
		addresses = []string{conn.LocalAddr().(*net.UDPAddr).IP.String()}
		_ = conn.Close()
	}
	for _, a := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(a, strconv.Itoa(port))) //nolint:noctx // it does not block
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("another program on this machine listens on port %d of %s, where the API server has to reach the node: a machine can be one node of one cluster, and cannot be a node beside a kubelet; nothing was changed", port, a)
		}
		if err == nil {
			_ = l.Close()
		}
	}
	return nil
}

// again keeps the arguments and flags for a node that has joined.
func (j *joining) again(m local.Member, p local.Profile, args []string) (local.Member, error) {
	if len(args) > 0 {
		address, err := join.ParseAddress(args[0])
		if err != nil {
			return m, fmt.Errorf("HOST:PORT: %w", err)
		}
		m.Server = "https://" + address // which its certificate has to prove
	}
	m, err := m.Again(j.settings, j.nodeIP, p)
	if err != nil {
		return m, err
	}
	return m, p.KeepMember(m)
}

// countFlags returns how many of some flags were given.
func countFlags(cmd *cobra.Command, names ...string) (n int) {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			n++
		}
	}
	return n
}

// joinLimit is how long the cluster may take to issue a certificate.
const joinLimit = 2 * time.Minute

// join finds the cluster and gets the credentials of the node, and saves them.
func (j *joining) join(cmd *cobra.Command, p local.Profile, text string) (m local.Member, err error) {
	address, err := join.ParseAddress(text)
	if err != nil {
		return m, fmt.Errorf("HOST:PORT: %w", err)
	}
	if j.token == "" {
		return m, errors.New("--token is required; `sampan token create` on the machine of the cluster prints one")
	}
	token, err := join.ParseToken(j.token)
	if err != nil {
		return m, fmt.Errorf("--token: %w", err)
	}
	var hashes [][sha256.Size]byte
	for _, h := range j.hashes {
		sum, err := join.ParseHash(h)
		if err != nil {
			return m, fmt.Errorf("--ca-cert-hash: %w", err)
		}
		hashes = append(hashes, sum)
	}
	if len(hashes) == 0 {
		return m, errors.New("--ca-cert-hash is required: without it any server that knows the token could claim to be the cluster")
	}
	s := j.settings
	if s.NodeName == "" {
		if s.NodeName, err = local.HostName(); err != nil {
			return m, err
		}
	}
	if errs := validation.IsDNS1123Subdomain(s.NodeName); len(errs) > 0 || net.ParseIP(s.NodeName) != nil {
		return m, fmt.Errorf("--node-name: must be a DNS-1123 subdomain (lower-case letters, digits, dots and hyphens) and no IP address, got %q", s.NodeName)
	}
	s, err = s.First()
	if err := errors.Join(err, local.CheckNodeIP(j.nodeIP), s.Check()); err != nil {
		return m, err
	}
	if err := checkKubeletConfig(cmd, s); err != nil {
		return m, err
	}
	say := func(step string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), step) }
	ctx, cancel := context.WithTimeout(cmd.Context(), joinLimit)
	defer cancel()
	say("looking for the cluster at " + address)
	place, err := join.Discover(ctx, address, token, hashes)
	if err != nil {
		return m, err
	}
	m = local.Member{Server: place.Server, ID: join.NewToken().Secret, NodeIP: j.nodeIP}
	user, err := client.NewREST(&rest.Config{
		Host: place.Server, BearerToken: token.String(), TLSClientConfig: rest.TLSClientConfig{CAData: place.CA},
	}, client.RESTOptions{})
	if err != nil {
		return m, err
	}
	node, err := client.Nodes.Get(ctx, user, "", s.NodeName)
	switch {
	case apierrors.IsUnauthorized(err):
		return m, fmt.Errorf("the cluster at %s does not accept token %s for authentication: it has expired, or has no usage for that; %w", address, token.ID, err)
	case apierrors.IsNotFound(err):
	case err != nil:
		return m, err
	default:
		if err := join.Taken(node, m.ID); err != nil {
			return m, err
		}
	}
	switch other, err := p.OtherNode(place.Server); {
	case err != nil:
		return m, err
	case other != "":
		return m, fmt.Errorf("this machine is a node of that cluster already, as --name=%s: two nodes cannot share the routes of one machine", other)
	}
	if err := checkPort(place.Server, j.nodeIP, kubeletPort); err != nil {
		return m, err
	}
	say("requesting a certificate for node " + s.NodeName)
	certificates, err := join.Request(ctx, user, p.PKI(), s.NodeName, place.CA)
	if err != nil {
		return m, j.undo(p, err)
	}
	api, err := certificates.Client(place.Server, "sampan", nil)
	if err != nil {
		return m, j.undo(p, err)
	}
	config, err := client.ConfigMaps.Get(ctx, api, "kube-system", join.SettingsName)
	if err != nil {
		return m, j.undo(p, fmt.Errorf("reading the settings of the cluster: %w", err))
	}
	of, err := join.ParseSettings(config.Data)
	if err != nil {
		return m, j.undo(p, err)
	}
	m.Settings = of.Join(s)
	return m, j.undo(p, p.KeepMember(m))
}

// undo removes the credentials of a node that did not join, if there is an error.
func (*joining) undo(p local.Profile, err error) error {
	if err == nil {
		return nil
	}
	gone := os.RemoveAll(p.PKI())
	if removeErr := os.Remove(p.DataDir); removeErr != nil && !errors.Is(removeErr, syscall.ENOTEMPTY) && !errors.Is(removeErr, fs.ErrNotExist) {
		gone = errors.Join(gone, removeErr)
	}
	return errors.Join(err, gone)
}

// startMember runs the node in the background and waits until it is Ready. If the start fails or is interrupted, it removes
// the kernel objects that it made, unless pods were running before.
func startMember(cmd *cobra.Command, o Options, p local.Profile) (local.Instance, error) {
	program, err := os.Executable()
	if err != nil {
		return local.Instance{}, err
	}
	before, _, err := p.Instance()
	if err != nil {
		return local.Instance{}, err
	}
	i, err := local.Start(cmd.Context(), p, program, []string{"agent", "--report", "--name=" + p.Name, "--data-dir=" + p.DataDir}, func(step string) {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), step)
	})
	if err == nil {
		return i, nil
	}
	if ctx := cmd.Context(); ctx.Err() != nil {
		err = context.Cause(ctx)
	} else {
		err = fmt.Errorf("the node did not start: %w%s", err, seeAlso(p.Log()))
	}
	after, running, lookErr := p.Instance()
	if lookErr != nil || running || before.Runtime.Alive() || !after.Exists() {
		return i, errors.Join(err, lookErr)
	}
	return i, errors.Join(err, end(context.WithoutCancel(cmd.Context()), o, p, after))
}

func agentCommand(o Options) *cobra.Command {
	var report bool
	var log session.Log
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a node that has joined a cluster in the foreground, logging to standard error",
		Long: "Run this machine's node of a cluster in the foreground until SIGINT or SIGTERM, for use with an init system.\n" +
			"`sampan join` must have made this machine a node before. The containers keep running after the program has ended and\n" +
			"are adopted at the next start; `sampan down` stops them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // as for serve
			forgetOthers(cmd)
			var r local.Reporter
			if report {
				r = local.NewReporter()
			}
			err := runAgent(cmd, o, r, log.To(cmd.ErrOrStderr()))
			if err != nil {
				r.Fail(err)
			}
			return err
		},
	}
	log.AddFlag(cmd.Flags())
	cmd.Flags().BoolVar(&report, "report", false, "report readiness on file descriptor 3")
	_ = cmd.Flags().MarkHidden("report") // it exists: the line above made it
	return cmd
}

func runAgent(cmd *cobra.Command, o Options, r local.Reporter, log *slog.Logger) error {
	p, err := profileOf(cmd)
	if err != nil {
		return err
	}
	m, found, err := p.Member()
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("this machine is not a node of a cluster: %s has no member.json; `sampan join` makes it one", p.DataDir)
	}
	if err := checkSurroundings(m.Settings, ""); err != nil {
		return err
	}
	return o.Join(cmd.Context(), Joined{
		Profile: p, Member: m, Report: r, Flags: flagValues(cmd, m.Settings),
		Log: log,
	})
}

func leaveCommand(o Options) *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "Stop this machine's node of a cluster, and remove everything that join has made",
		Long: "Stop this machine's node of a cluster with all of its pods, and remove everything that `sampan join` has made: processes,\n" +
			"containers, mounts, links, routes, rules, cgroups and data, local volumes included. A node may not delete its Node\n" +
			"object: an administrator does, after or before, with the command that this one prints. To end the pods in an orderly\n" +
			"way, `sampan drain NODE` first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, i, _, err := found(cmd)
			if err != nil {
				return err
			}
			m, member, err := p.Member()
			if err != nil {
				return err
			}
			if !member {
				return fmt.Errorf("this machine is not a node of a cluster of another machine: %s has no member.json; %s ends a cluster of this machine", p.DataDir, hint(cmd, "down --purge"))
			}
			if _, err := endStarters(cmd.Context(), p); err != nil {
				return err
			}
			if p, i, _, err = found(cmd); err != nil {
				return err
			}
			if i.Exists() {
				if err := end(cmd.Context(), o, p, i); err != nil {
					return err
				}
			}
			next := afterLeaving(cmd.Context(), p, m)
			if _, err := p.Remove(cmd.Context()); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "this machine is no longer a node of the cluster at %s\n%s\n", m.Server, next)
			return nil
		},
	}
}

// leaveLimit is how long leave waits for an API server that may be gone.
const leaveLimit = 5 * time.Second

// afterLeaving returns what an administrator has to do about the Node, which a node may not delete. The Node may be gone, or that
// of another machine that has joined under the name since.
func afterLeaving(ctx context.Context, p local.Profile, m local.Member) string {
	name := m.Settings.NodeName
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	certificates, err := join.Open(p.PKI(), name)
	if err != nil {
		return deleteHint(name, nil, err, m.ID)
	}
	api, err := certificates.Client(m.Server, "sampan", nil)
	if err != nil {
		return deleteHint(name, nil, err, m.ID)
	}
	node, err := client.Nodes.Get(ctx, api, "", name)
	return deleteHint(name, node, err, m.ID)
}

// deleteHint returns the advice about a Node that the machine with this ID has left. The error is that of reading it.
func deleteHint(name string, node *corev1.Node, err error, id string) string {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the Node object %s does not exist", name)
	case err == nil && join.Taken(node, id) != nil:
		return fmt.Sprintf("the Node object %s is that of another machine by now: do not delete it", name)
	}
	return "to remove the Node object: kubectl delete node " + name
}
