package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/sampan-io/sampan/internal/oomscore"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/runtime"
	"github.com/sampan-io/sampan/runtime/cni"
	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/image/demo"
)

// version is set by the linker: -X main.version=…
var version = "dev"

const usage = `usage: sampan-runtime COMMAND [FLAGS]

  serve     serve CRI until SIGTERM, then stop all pods and leave nothing behind;
            SIGHUP restarts the program in place (exec), while all pods keep running
  clean     remove the leftovers of a dead runtime with the same flags, except images
  version   print the version

flags of serve and clean:
`

// The main goroutine keeps the main thread. libcontainer lets a thread enter the mount
// namespace of each new container and end there. Go ends every thread but the main one,
// which would stay in that namespace: it and its mounts would live as long as this
// process, and /proc/self would show them instead of the host's.
func init() { goruntime.LockOSThread() }

func main() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		container.Init()
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the flags.
type settings struct {
	socket, root, state, cgroup, bridge, podCIDR, clusterCIDR, serviceCIDR, table, log, registries, cniConf, cniBin, cdi, kubelet string
	debug                                                                                                                         bool
	readyFD, logFiles                                                                                                             int
	logSize                                                                                                                       int64
}

func (s *settings) flags(out io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("sampan-runtime", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&s.socket, "socket", "/run/sampan/runtime.sock", "`path` of the socket; made with mode 0600")
	f.StringVar(&s.root, "root", "/var/lib/sampan/runtime", "`directory` of images and container logs; kept by clean")
	f.StringVar(&s.state, "state", "/run/sampan/runtime", "`directory` of the state of pods and containers")
	f.StringVar(&s.cgroup, "cgroup", "sampan", "`name` of the parent cgroup of all containers")
	f.StringVar(&s.bridge, "bridge", "sampan0", "`name` of the pods' bridge")
	f.StringVar(&s.podCIDR, "pod-cidr", "10.88.0.0/24", "pod `network`, or one for each IP family separated by a comma; the bridge has the first address")
	f.StringVar(&s.clusterCIDR, "cluster-cidr", "", "`network` of the pods of all nodes, or one for each IP family; packets of pods to it keep their source addresses (default: the value of --pod-cidr)")
	f.StringVar(&s.serviceCIDR, "service-cidr", "", "service `network`, or one for each IP family, which is routed to the bridge; none if empty")
	f.StringVar(&s.table, "table", "sampan-runtime", "`name` of the nftables table")
	f.StringVar(&s.cniConf, "cni-conf-dir", "", "`directory` with the configuration of CNI plug-ins, which then connect pods in place of the bridge; \"default\" means "+cni.DefaultConfDir)
	f.StringVar(&s.cdi, "cdi-spec-dirs", "/etc/cdi,/var/run/cdi", "`directories` with files of the Container Device Interface, separated by commas; a later one has precedence")
	f.StringVar(&s.kubelet, "kubelet-dir", "", "`directory` that paths in /var/lib/kubelet mean in files of the Container Device Interface (default /var/lib/kubelet itself)")
	f.StringVar(&s.cniBin, "cni-bin-dir", cni.DefaultBinDir, "`directories` with the programs of CNI plug-ins, separated by commas")
	f.StringVar(&s.registries, "registries", "/etc/sampan/certs.d,/etc/containerd/certs.d",
		"`directories` with the configuration of registries (HOST/hosts.toml, as for containerd), separated by commas; read at each pull")
	f.StringVar(&s.log, "log", "", "append the log to this `file` instead of writing it to standard error")
	f.Int64Var(&s.logSize, "container-log-max-size", container.DefaultLogSize,
		"size in `bytes` at which a container's log is rotated; 0 leaves rotation to the CRI client, as the kubelet expects")
	f.IntVar(&s.logFiles, "container-log-max-files", container.DefaultLogFiles, "maximum `number` of log files of a container, at least 2")
	f.IntVar(&s.readyFD, "ready-fd", 0, "report readiness, or the error, on this file `descriptor`, and close it")
	f.BoolVar(&s.debug, "debug", false, "log debug messages")
	f.Usage = func() {
		_, _ = fmt.Fprint(out, usage)
		f.PrintDefaults()
	}
	return f
}

func (s *settings) options(log *slog.Logger) (runtime.Options, error) {
	if s.logSize < 0 {
		return runtime.Options{}, fmt.Errorf("--container-log-max-size: must be >= 0, got %d", s.logSize)
	}
	if s.logFiles < 2 {
		return runtime.Options{}, fmt.Errorf("--container-log-max-files: must be >= 2, got %d", s.logFiles)
	}
	o := runtime.Options{Logs: container.LogLimits{Size: s.logSize, Files: s.logFiles}, Cgroup: s.cgroup, Bridge: s.bridge, Table: s.table, KubeletDir: s.kubelet, Version: version, Log: log}
	if s.cniConf == "default" {
		s.cniConf = cni.DefaultConfDir
	}
	if s.cniConf != "" {
		o.CNIConfDir, o.CNIBinDirs = s.cniConf, strings.Split(s.cniBin, ",")
	}
	if s.cdi != "" {
		o.DeviceDirs = strings.Split(s.cdi, ",")
	}
	if s.registries != "" {
		o.Registries = strings.Split(s.registries, ",")
	}
	for _, p := range []struct {
		flag, value string
		to          *string
	}{{"socket", s.socket, &o.Socket}, {"root", s.root, &o.Root}, {"state", s.state, &o.State}} {
		abs, err := filepath.Abs(p.value)
		if err != nil || p.value == "" {
			return o, fmt.Errorf("--%s %q is not a path", p.flag, p.value)
		}
		*p.to = abs
	}
	for _, c := range []struct {
		flag, value string
		to          *[]netip.Prefix
		needed      bool
	}{{"pod-cidr", s.podCIDR, &o.PodCIDRs, true}, {"cluster-cidr", s.clusterCIDR, &o.ClusterCIDRs, false}, {"service-cidr", s.serviceCIDR, &o.ServiceCIDRs, false}} {
		if c.value == "" && !c.needed {
			continue
		}
		for text := range strings.SplitSeq(c.value, ",") {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return o, fmt.Errorf("--%s: must be a network such as 10.88.0.0/24, or one for each IP family separated by a comma, got %q", c.flag, c.value)
			}
			*c.to = append(*c.to, prefix)
		}
	}
	return o, nil
}

// command returns the exit code: 0 done, 1 it failed, 2 it was called wrongly.
func command(args []string, out, errs io.Writer) int {
	var s settings
	flags := s.flags(errs)
	if len(args) == 0 {
		flags.Usage()
		return 2
	}
	verb := args[0]
	switch verb {
	case "version", "--version":
		_, _ = fmt.Fprintln(out, "sampan-runtime", version)
		return 0
	case "help", "-h", "--help":
		flags.SetOutput(out)
		flags.Usage = func() { _, _ = fmt.Fprint(out, usage); flags.PrintDefaults() }
		flags.Usage()
		return 0
	case "serve", "clean":
	default:
		_, _ = fmt.Fprintf(errs, "sampan-runtime: unknown command %q; must be serve, clean or version\n", verb)
		return 2
	}
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		_, _ = fmt.Fprintf(errs, "sampan-runtime: %s takes no arguments, got %q\n", verb, flags.Args())
		return 2
	}
	log, err := s.logger(errs)
	if err != nil {
		_, _ = fmt.Fprintln(errs, "sampan-runtime:", err)
		return 1
	}
	o, err := s.options(log)
	if err != nil {
		_, _ = fmt.Fprintln(errs, "sampan-runtime:", err)
		return 2
	}
	if verb == "clean" {
		err = runtime.Clean(o)
	} else {
		err = s.report(o, serve)
	}
	if err != nil {
		_, _ = fmt.Fprintln(errs, "sampan-runtime:", err)
		if s.log != "" {
			log.Error("container runtime stopped with an error", "err", err)
		}
		return 1
	}
	return 0
}

func (s *settings) logger(errs io.Writer) (*slog.Logger, error) {
	to := errs
	if s.log != "" {
		f, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
		if err != nil {
			return nil, fmt.Errorf("--log: %w", err)
		}
		to = f
	}
	level := slog.LevelInfo
	if s.debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level})), nil
}

// report calls serve and reports its start to the parent process, on the descriptor of
// --ready-fd.
func (s *settings) report(o runtime.Options, serve func(runtime.Options, func()) error) error {
	if _, restarted := os.LookupEnv(runtime.HandoverVariable); restarted || s.readyFD <= 2 {
		// After a restart in place it was said before, and the descriptor of this
		// number is another.
		return serve(o, func() {})
	}
	syscall.CloseOnExec(s.readyFD)
	to := os.NewFile(uintptr(s.readyFD), "ready")
	var once sync.Once
	tell := func(what string) {
		once.Do(func() {
			_, _ = fmt.Fprintln(to, what) // they may have lost interest
			_ = to.Close()
		})
	}
	err := serve(o, func() { tell("ready") })
	if err != nil {
		tell(err.Error())
	}
	return err
}

// silenceLibraries turns off the log of the libraries that serve streams: it repeats what the clients get, and what
// package streaming logs.
func silenceLibraries() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }

// keepDescriptors prevents that descriptors which this process was started with get into the processes that it starts.
func keepDescriptors() {
	const first = 3
	_ = unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11
}

// serve runs the server, calls ready when it serves, and executes this program again after SIGHUP.
func serve(o runtime.Options, ready func()) error {
	// Found out now: after the file was replaced the kernel calls it deleted.
	var err error
	if o.Program, err = os.Executable(); err != nil {
		return err
	}
	if o.Handed, err = runtime.HandedOver(); err != nil {
		return err
	}
	if bytes, ok := demo.Program(); ok {
		images, err := demo.New(bytes)
		if err != nil {
			return err
		}
		o.Images = []runtime.Builtin{{IDs: images.IDs, Archive: images.Archive}}
	} else {
		o.Log.Info("this program was built without the demo images (build tag embed)")
	}
	silenceLibraries()
	keepDescriptors()
	defer oomscore.Protect(oomscore.Runtime)()
	server, err := runtime.New(o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	group.Go(func(ctx context.Context) { onHangup(ctx, o.Log, server) })
	group.Go(func(ctx context.Context) {
		select {
		case <-server.Ready():
			ready()
		case <-ctx.Done():
		}
	})
	err = server.Run(ctx)
	if !errors.Is(err, runtime.ErrRestart) {
		return err
	}
	handover, err := server.Handover()
	if err != nil {
		return err
	}
	// The next program hears of it once it listens for it; until then a second
	// SIGHUP must not be its death.
	signal.Ignore(syscall.SIGHUP)
	o.Log.Info("restarting in place", "program", o.Program)
	return handover.Execute(o.Program, os.Args)
}

// onHangup restarts the server at the first SIGHUP at which that is possible.
func onHangup(ctx context.Context, log *slog.Logger, server *runtime.Server) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		if err := server.Restart(ctx); err != nil {
			log.Error("not restarted", "err", err)
			continue
		}
		return
	}
}
