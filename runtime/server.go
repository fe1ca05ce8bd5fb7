package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/runtime/api"
	"github.com/sampan-io/sampan/runtime/cni"
	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/image"
	"github.com/sampan-io/sampan/runtime/network"
	"github.com/sampan-io/sampan/runtime/registry"
	"github.com/sampan-io/sampan/runtime/streaming"
)

// Options configures a [Server]. All but the last group are required.
type Options struct {
	Socket string // where CRI is served; mode 0600
	Root   string // images and what containers write; survives
	State  string // pods and containers; lives as long as they do
	Cgroup string // name of the cgroup above all containers

	Bridge       string // see [network.Options]
	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
	ClusterCIDRs []netip.Prefix // of the pods of all nodes; empty means PodCIDRs
	Table        string

	// CNIConfDir is a directory with the configuration of CNI plug-ins, and CNIBinDirs are those with their programs: they connect
	// pods in place of the bridge. Empty means that the bridge does.
	CNIConfDir string
	CNIBinDirs []string

	// DeviceDirs are directories with files of the Container Device Interface; nil means /etc/cdi and /var/run/cdi. A file in
	// a later one has precedence.
	DeviceDirs []string
	// KubeletDir is the directory that paths in /var/lib/kubelet mean in these files, for drivers whose pods have it mounted there;
	// "" means /var/lib/kubelet.
	KubeletDir string

	Logs    container.LogLimits // of each container; the zero value means that logs grow without bound
	Version string              // of this program, for CRI's Version
	Program string              // its file, for a restart in place; "" means that there is none
	// Registries are directories with the configuration of registries, see [registry.Options].
	Registries []string

	Images []Builtin     // imported at the start unless they are there
	Grace  time.Duration // what containers get between SIGTERM and SIGKILL at the end; 0 means two seconds
	Handed *Handover     // from the program that ran in this process before; nil means none
	Log    *slog.Logger  // nil means slog.Default
}

func (o Options) check() (Options, error) {
	var errs []error
	if o.DeviceDirs == nil {
		o.DeviceDirs = []string{"/etc/cdi", "/var/run/cdi"}
	}
	places := map[string]string{"socket": o.Socket, "root": o.Root, "state": o.State}
	if o.CNIConfDir != "" {
		places["cni-conf-dir"] = o.CNIConfDir
		for _, dir := range o.CNIBinDirs {
			places["cni-bin-dir"] = dir
		}
		if len(o.CNIBinDirs) == 0 {
			errs = append(errs, errors.New("cni-conf-dir needs cni-bin-dir"))
		}
	}
	if o.KubeletDir != "" {
		places["kubelet-dir"] = o.KubeletDir
	}
	for name, path := range places {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s %q is not an absolute path", name, path))
		}
	}
	const longest = 107 // sun_path of struct sockaddr_un, with its zero byte
	if len(o.Socket) > longest {
		errs = append(errs, fmt.Errorf("socket path %q is longer than the %d bytes that Linux allows", o.Socket, longest))
	}
	if o.Cgroup == "" || o.Cgroup != filepath.Base(o.Cgroup) || o.Cgroup == ".." || o.Cgroup == "." {
		errs = append(errs, fmt.Errorf("cgroup %q is not a plain name", o.Cgroup))
	}
	if o.Grace == 0 {
		o.Grace = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, errors.Join(errs...)
}

// registries returns the client for registries.
func (o Options) registries() *registry.Client {
	return registry.New(registry.Options{Dirs: o.Registries, UserAgent: "sampan/" + o.Version, Log: o.Log})
}

// ErrRestart is returned by [Server.Run] when the server was asked to make place
// for a newer program in the same process: call [Server.Handover], and execute it.
var ErrRestart = errors.New("restart in place")

// A Server is a container runtime. Make one with [New].
type Server struct {
	cri.UnimplementedRuntimeServiceServer
	opts       Options
	supervisor *container.Supervisor
	network    *network.Network
	cni        *cni.Network // nil: pods are on the bridge
	streams    *streaming.Server
	events     *hub
	activity   *memory.Activity // of calls
	layers     layerSizes
	started    time.Time
	ready      chan struct{}
	restart    chan struct{} // closed by the first Restart
	once       sync.Once

	imagesReady chan struct{} // closed when images is set and the built-in ones are imported
	images      atomic.Pointer[image.Store]

	cgroup   string // set by prepare, before anything is served
	lock     *os.File
	listener *net.UnixListener
	limits   []string // what the surroundings lack; set by prepare
	noUsers  string   // why pods can't have users of their own; "" if they can; set by prepare
	adopted  [2]int   // pods and containers; set by adoptPods

	mu         sync.Mutex
	pods       map[string]*pod             // guarded by mu
	containers map[string]*containerConfig // guarded by mu; by container id
	pauseOf    map[string]*pod             // guarded by mu; by the id in podRecord.Pause
}

// New checks the options. It changes nothing on the machine yet.
func New(opts Options) (*Server, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	s := &Server{
		opts: opts, activity: memory.NewActivity(), started: time.Now(), ready: make(chan struct{}), restart: make(chan struct{}), imagesReady: make(chan struct{}),
		pods: map[string]*pod{}, containers: map[string]*containerConfig{}, pauseOf: map[string]*pod{},
	}
	s.events = newHub(s)
	s.network, err = network.New(network.Options{
		Bridge: opts.Bridge, PodCIDRs: opts.PodCIDRs, ServiceCIDRs: opts.ServiceCIDRs, ClusterCIDRs: opts.ClusterCIDRs, Alone: opts.CNIConfDir != "", Table: opts.Table, Log: opts.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	if opts.CNIConfDir != "" {
		s.cni = cni.New(cni.Options{ConfDir: opts.CNIConfDir, BinDirs: opts.CNIBinDirs, Cache: filepath.Join(opts.Root, "cni"), Log: opts.Log})
	}
	s.supervisor, err = container.New(container.Options{Dir: opts.State, Logs: opts.Logs, Changed: s.containerChanged, Log: opts.Log})
	if err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	s.streams = streaming.New(streaming.Options{Handler: streamHandler{s}, Avoid: s.portsBefore, Gone: container.ErrClientGone, Log: opts.Log})
	return s, nil
}

// Ready is closed when the server answers.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Restart makes Run return [ErrRestart], while all pods keep running. It returns an error,
// and changes nothing, if the program's file can't be executed: that would end the parent
// of all containers.
func (s *Server) Restart(ctx context.Context) error {
	if s.opts.Program == "" {
		return errors.New("a restart in place is not possible: Options.Program is empty")
	}
	if err := s.supervisor.Spawning(func() error { return tryProgram(ctx, s.opts.Program) }); err != nil {
		return fmt.Errorf("not restarting, because %s can't be executed: %w", s.opts.Program, err)
	}
	s.once.Do(func() { close(s.restart) })
	return nil
}

// Run adopts the pods of an earlier server, and serves until ctx is cancelled. Then it
// stops all pods and removes everything of the runtime from the machine except the image
// store (R4), and returns nil or an error for what couldn't be removed. It may be called
// once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	defer s.network.Close()
	asked, stop := context.WithCancel(ctx)
	defer stop()
	restarting := atomic.Bool{}
	err := run.Stages(asked,
		run.Stage{{Name: "containers", Run: s.supervisor.Run, Ready: s.supervisor.Ready()}},
		run.Stage{
			{Name: "images", Run: s.runImages},
			{Name: "streams", Run: s.runStreams, Ready: s.streams.Ready()},
			{Name: "restart", Run: func(ctx context.Context) error {
				select {
				case <-s.restart:
					restarting.Store(true)
					stop()
					<-ctx.Done()
				case <-ctx.Done():
				}
				return nil
			}},
		},
		run.Stage{{Name: "cri", Run: func(ctx context.Context) error { return s.serve(ctx, &restarting) }, Ready: s.ready}},
	)
	if restarting.Load() && err == nil {
		return ErrRestart
	}
	_ = s.listener.Close()
	if ctx.Err() == nil {
		// Something of ours broke. The pods are left to the next start.
		return err
	}
	return errors.Join(err, container.RemoveCgroup(s.cgroup), s.vanish())
}

// prepare makes sure that no other server uses the state directory, and sets up the parts
// that outlive one connection.
func (s *Server) prepare() error {
	if os.Geteuid() != 0 {
		return errors.New("a container runtime needs to run as root")
	}
	if err := os.MkdirAll(s.opts.State, 0o711); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	var err error
	if s.lock, err = lockState(s.opts.State, s.opts.Handed); err != nil {
		return err
	}
	if err := s.forgetOtherBoot(); err != nil {
		return err
	}
	if err := privateMount(s.opts.State); err != nil {
		return err
	}
	if s.cgroup, err = container.CgroupParent(s.opts.Cgroup); err != nil {
		return err
	}
	unenforced, err := s.supervisor.Unenforced(s.cgroup)
	if err != nil {
		return err
	}
	if err := s.supervisor.Spawning(s.probeUsers); err != nil {
		s.noUsers = err.Error()
		s.opts.Log.Info("pods can't have users of their own", "cause", err)
	}
	unreachable, err := s.network.Up()
	if err != nil {
		return err
	}
	s.limits = slices.Concat(unenforced, unreachable)
	for _, l := range s.limits {
		s.opts.Log.Warn("limitation of this machine", "limitation", l)
	}
	if s.opts.Handed != nil {
		s.supervisor.TakeOver(s.opts.Handed.FIFOs)
	}
	s.listener, err = listen(s.opts.Socket, s.opts.Handed)
	return err
}

// probeUsers finds out whether pods can have users of their own.
func (s *Server) probeUsers() error {
	if err := os.MkdirAll(s.opts.Root, 0o700); err != nil {
		return err
	}
	// The users of a pod are not root on this machine, and their processes begin in these directories.
	for dir := s.opts.State; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode()&1 == 0 {
			return fmt.Errorf("the mode of %s is %v: want one with which all users may pass through it, such as 0711", dir, info.Mode())
		}
		if dir == "/" {
			break
		}
	}
	return container.CheckMappedMounts(s.opts.Root)
}

// lockState makes this process the only runtime on the state directory, or says
// which one is.
func lockState(dir string, handed *Handover) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	if handed != nil {
		unix.CloseOnExec(handed.Lock)
		return os.NewFile(uintptr(handed.Lock), path), nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid, _ := os.ReadFile(path)
		_ = f.Close()
		return nil, fmt.Errorf("%s is in use by the runtime with process id %s: stop that one first", dir, pid)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprint(f, os.Getpid())
	}
	if err != nil {
		_ = f.Close() // or the next try would find it locked
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return f, nil
}

// forgetOtherBoot empties a state directory that was written before the machine was
// last started: nothing in it lives any more.
func (s *Server) forgetOtherBoot() error {
	now, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	path := filepath.Join(s.opts.State, "boot")
	then, err := os.ReadFile(path)
	if err == nil && string(then) == string(now) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	same := false
	if err == nil && len(then) != len(now) { // damaged, for example by a full disk
		if same, err = mountedBelow(s.opts.State); err != nil {
			return err
		}
		s.opts.Log.Warn("the record of the boot is damaged; mounts in the state directory show whether it is of this boot", "file", path, "mounted", same)
	}
	if err == nil && !same {
		s.opts.Log.Info("the machine was restarted: removing the state of its earlier pods", "state", s.opts.State)
		for _, name := range stateParts() {
			if err := os.RemoveAll(filepath.Join(s.opts.State, name)); err != nil {
				return fmt.Errorf("state of an earlier boot: %w", err)
			}
		}
	}
	return wholefile.Write(path, now, 0o600, wholefile.UntilBoot)
}

// stateParts are the names in the state directory, except for the lock.
func stateParts() []string {
	return []string{"pods", "containers", "libcontainer", "rootfs", "boot", "fdstore.json"}
}

// listen opens the socket, or takes the open one over.
func listen(path string, handed *Handover) (*net.UnixListener, error) {
	if handed != nil {
		unix.CloseOnExec(handed.Listener)
		f := os.NewFile(uintptr(handed.Listener), path)
		defer f.Close()
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("taking over %s: %w", path, err)
		}
		return l.(*net.UnixListener), nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// We hold the lock, so the server that created this socket is dead.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// headroom is how many bytes of garbage may pile up. The heap is small, and each frame of a stream is allocated, so without it the
// collector runs for every second megabyte of a stream. It is given back when nothing is done.
const headroom = 16 << 20

// runImages opens the image store and imports the built-in images. Calls that need
// images wait for it; others don't.
func (s *Server) runImages(ctx context.Context) error {
	store, err := image.Open(image.Options{Dir: s.opts.Root, Log: s.opts.Log})
	if err != nil {
		return err
	}
	if err := store.Sweep(func(id string) bool { _, err := s.supervisor.Get(id); return err == nil }); err != nil {
		s.opts.Log.Warn("files of removed containers couldn't be removed", "err", err)
	}
	s.images.Store(store)
	for _, b := range s.opts.Images {
		if err := importOnce(ctx, store, b); err != nil {
			// Only these images are missing. Everything else works.
			s.opts.Log.Error("the built-in images are missing", "err", err)
		}
	}
	close(s.imagesReady)
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil
	}
	// Return the memory of the start, and later that of each burst of pods.
	return memory.Run(ctx, memory.Options{Headroom: headroom, Activity: s.activity, Log: s.opts.Log})
}

// runStreams serves streams until ctx is cancelled.
func (s *Server) runStreams(ctx context.Context) error {
	return s.streams.Run(ctx)
}

// store waits for the image store.
func (s *Server) store(ctx context.Context) (*image.Store, error) {
	select {
	case <-s.imagesReady:
		return s.images.Load(), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the image store: %w", context.Cause(ctx))
	}
}

// serve serves until ctx is cancelled, and then stops all pods, unless the program is
// only being replaced.
func (s *Server) serve(ctx context.Context, restarting *atomic.Bool) error {
	if err := s.adoptPods(ctx); err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(s.intercept), grpc.StreamInterceptor(s.interceptStream),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		// Messages are small and clients few; the default buffers are for others.
		grpc.ReadBufferSize(8<<10), grpc.WriteBufferSize(8<<10),
	)
	pullers := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer pullers.Stop()
	images := &imageService{server: s, pulls: newPulls(s.opts.registries(), s.images.Load, pullers)}
	cri.RegisterRuntimeServiceServer(server, s)
	cri.RegisterImageServiceServer(server, images)
	api.RegisterNodeServer(server, &nodeService{server: s, images: images})

	listener, err := s.serving()
	if err != nil {
		return err
	}
	group := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer group.Stop()
	ended := make(chan error, 1)
	group.Go(func(context.Context) { ended <- server.Serve(listener) })
	s.opts.Log.Info("serving CRI", "socket", s.opts.Socket, "for", "root on this machine",
		"pods", commas(s.opts.PodCIDRs), "adoptedPods", s.adopted[0], "adoptedContainers", s.adopted[1])
	close(s.ready)
	select {
	case err := <-ended:
		return fmt.Errorf("serving %s: %w", s.opts.Socket, err)
	case <-ctx.Done():
	}
	s.events.close() // or their streams would keep the server from ending
	timer := time.AfterFunc(s.opts.Grace, server.Stop)
	server.GracefulStop()
	timer.Stop()
	if restarting.Load() {
		return nil
	}
	return s.removeAllPods(context.WithoutCancel(ctx))
}

// maxMessage bounds messages: the output of an exec, twice 16 MiB, is the largest.
const maxMessage = 40 << 20

// serving returns a listener that gRPC may close at the end: a copy, because the
// socket itself must stay open over a restart in place.
func (s *Server) serving() (net.Listener, error) {
	f, err := s.listener.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// vanish removes what is left when all pods are gone.
func (s *Server) vanish() error {
	errs := []error{
		s.network.Down(),
		container.EndStore(s.opts.State),
		mounts.DetachBelow(s.opts.State),
		remove(s.opts.Socket),
	}
	for _, name := range append(stateParts(), "lock") {
		errs = append(errs, os.RemoveAll(filepath.Join(s.opts.State, name)))
	}
	if err := os.Remove(s.opts.State); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
