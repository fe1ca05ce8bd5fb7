package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/oomscore"
	"github.com/sampan-io/sampan/internal/run"
)

// A runtimeProcess is the container runtime, which outlives this program: its
// containers go on while we are stopped, killed or replaced.
type runtimeProcess struct {
	c     *cluster
	ready chan struct{}

	unpacked chan struct{}
	program  string // set when unpacked is closed, or fault is
	fault    error

	mu  sync.Mutex
	now local.Runtime // guarded by mu
}

func (c *cluster) newRuntime() *runtimeProcess {
	return &runtimeProcess{c: c, ready: make(chan struct{}), unpacked: make(chan struct{})}
}

// unpack puts the program of the runtime into the data directory, unless it is there. It takes longer than
// the start of the API server, and runs beside it.
func (r *runtimeProcess) unpack(context.Context) {
	defer close(r.unpacked)
	dir := filepath.Join(r.c.Profile.DataDir, "bin")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.fault = fmt.Errorf("making the directory of the container runtime: %w", err)
		return
	}
	r.program, r.fault = r.c.Runtime(dir)
}

// awaited returns a task that is ready when the runtime is.
func (r *runtimeProcess) awaited() run.Task {
	return run.Task{Name: "readiness of the container runtime", Ready: r.ready, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}}
}

func (r *runtimeProcess) current() local.Runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// set notes which process it is, and writes it down: it is found by that after our
// own death.
func (r *runtimeProcess) set(p local.Process) error {
	now := local.Runtime{Process: p, Program: r.program, DataDir: r.c.Profile.DataDir, PodNetwork: r.c.Settings.Pods.String(), NodeNetwork: joined(r.c.networks), ServiceNetwork: r.c.Settings.Services.String()}
	r.mu.Lock()
	r.now = now
	r.mu.Unlock()
	return r.c.Profile.SaveRuntime(now)
}

// Run finds the runtime that an earlier run left, or starts one, and starts it
// again whenever it ends. It leaves it running when ctx is over.
func (r *runtimeProcess) Run(ctx context.Context) error {
	<-r.unpacked
	if r.fault != nil {
		return r.fault
	}
	old, err := r.adopt()
	if err != nil {
		return err
	}
	if old.PID != 0 {
		r.c.Log.InfoContext(ctx, "adopted the running container runtime", "pid", old.PID)
		if err := r.upgrade(ctx, old); err != nil {
			return err
		}
		if err := r.set(old); err != nil {
			return err
		}
		close(r.ready)
		if err := old.Wait(ctx); err != nil {
			return nil // ctx is over
		}
		r.c.Log.WarnContext(ctx, "container runtime exited, restarting it", "pid", old.PID)
	}
	for fresh := old.PID == 0; ; fresh = false {
		began := time.Now()
		cmd, err := r.start(ctx)
		if ctx.Err() != nil {
			return nil // it goes on, and is found by what was written down
		}
		if err != nil {
			return err
		}
		if fresh {
			close(r.ready)
		}
		if err := r.current().Wait(ctx); err != nil {
			return nil // ctx is over
		}
		r.c.Log.WarnContext(ctx, "container runtime exited, restarting it", "err", cmd.Wait())
		// One that can't live is started at most once a second.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second - time.Since(began)):
		}
	}
}

// upgrade has a runtime whose program was replaced on disk since its start execute the
// new program in place: it stays the parent of its containers.
func (r *runtimeProcess) upgrade(ctx context.Context, p local.Process) error {
	const replaced = " (deleted)" // proc(5), /proc/PID/exe
	runs, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	if err != nil || !strings.HasSuffix(runs, replaced) {
		return nil // it has just ended, and will be started again
	}
	r.c.Log.InfoContext(ctx, "upgrading the container runtime in place", "pid", p.PID)
	if err := syscall.Kill(p.PID, syscall.SIGHUP); err != nil {
		return fmt.Errorf("upgrading the container runtime: %w", err)
	}
	return nil
}

// adopt returns the runtime that is running already, or the zero Process.
func (r *runtimeProcess) adopt() (local.Process, error) {
	i, _, err := r.c.Profile.Instance()
	if err != nil || !i.Runtime.Alive() {
		return local.Process{}, err
	}
	return i.Runtime.Process, nil
}

// runtimeFlags are the flags of the runtime's commands serve and clean.
func runtimeFlags(p local.Profile, pods, services string) []string {
	return []string{
		"--socket=" + p.RuntimeSocket(),
		"--root=" + p.RuntimeRoot(),
		"--state=" + p.RuntimeState(),
		"--cgroup=" + p.Cgroup(),
		"--bridge=" + p.Bridge(),
		"--table=" + p.NetworkTable(),
		"--pod-cidr=" + pods,
		"--service-cidr=" + services,
	}
}

// start runs the runtime and returns when it answers, or ctx is over.
func (r *runtimeProcess) start(ctx context.Context) (*exec.Cmd, error) {
	log, err := os.OpenFile(r.c.Profile.RuntimeLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of the container runtime: %w", err)
	}
	defer log.Close()
	told, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer told.Close()
	args := append([]string{"serve", "--ready-fd=3", "--registries=" + r.c.Profile.RegistryDirs(r.c.Settings.Images)}, runtimeFlags(r.c.Profile, joined(r.c.networks), r.c.Settings.Services.String())...)
	args = append(append(args, "--cluster-cidr="+r.c.Settings.Pods.String(), "--kubelet-dir="+r.c.Profile.AgentRoot()), r.c.logFlags()...)
	if dir := r.c.Settings.CNIConfDir; dir != "" {
		args = append(args, "--cni-conf-dir="+dir, "--cni-bin-dir="+cmp.Or(r.c.Settings.CNIBinDir, local.DefaultCNIBinDir))
	}
	cmd := exec.Command(r.program, args...) //nolint:noctx // it must outlive us
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	err = oomscore.Spawn(cmd.Start) // it protects itself
	_ = tell.Close()
	if err != nil {
		return nil, fmt.Errorf("starting the container runtime: %w", err)
	}
	// Before it is ready: should we be killed now, it must be found.
	p, err := local.ProcessOf(cmd.Process.Pid)
	if err == nil {
		err = r.set(p)
	}
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	}
	stop := context.AfterFunc(ctx, func() { _ = told.SetReadDeadline(time.Now()) })
	defer stop()
	said, err := io.ReadAll(told) // "ready" or what is wrong, then the end
	if err == nil {
		switch what := strings.TrimSpace(string(said)); what {
		case "ready":
		case "":
			err = fmt.Errorf("it exited before it was ready (log: %s)", log.Name())
		default:
			err = errors.New(what)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		_ = cmd.Wait() // it has closed its end of the pipe because it ends
		return nil, err
	}
	return cmd, nil
}
