package container

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // teaches the cgroup manager to restrict devices
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // enters the namespaces before Go's runtime starts, when executed as "init"
	"golang.org/x/sys/unix"
)

// Init does the inner half of starting a container or a process in one. A program
// that uses a [Supervisor] calls it first thing in main when its first argument is
// "init"; it doesn't return.
func Init() {
	unix.CloseOnExec(execveFD)
	libcontainer.Init()
}

// execveFD is the descriptor, in the process that becomes a container, of the pipe
// that closes when that process executes the container's program; see
// [execveWatch]. In a process for an exec the descriptor is one of libcontainer's
// own, which are close-on-exec anyway.
const execveFD = 3

// startErrorCode is the exit code of a container whose command could not be
// executed.
const startErrorCode = 128

// Start runs a container that was created. When Start returns nil, its command has
// been executed. When it returns an error, the container counts as ended, with
// [ReasonStartError].
func (k *Supervisor) Start(ctx context.Context, id string) error {
	e, err := k.get(id)
	if err != nil {
		return err
	}
	e.busy.Lock()
	defer e.busy.Unlock()
	if r := e.snapshot(); r.State() != Created {
		return fmt.Errorf("container %s was started before: %w", id, ErrState)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	r, err := e.update(func(r *Record) { r.Starting = true })
	if err != nil {
		return err
	}
	if err := k.launch(ctx, e, &r); err != nil {
		k.removeLib(&r)
		k.ended(e, Exit{Code: startErrorCode, Reason: ReasonStartError, Message: err.Error(), Finished: time.Now()})
		return err
	}
	return nil
}

// launch creates the process and starts waiting for it.
func (k *Supervisor) launch(ctx context.Context, e *entry, r *Record) error {
	spec, err := k.enforceable(&r.Spec)
	if err != nil {
		return err
	}
	leave, err := k.joinPIDs(spec)
	if err != nil {
		return err
	}
	defer leave()
	config, err := k.config(spec, e.dir)
	if err != nil {
		return err
	}
	if err := e.out.reopen(); err != nil {
		return err
	}
	proc := r.process(r.Spec.Args)
	proc.Init, proc.Cwd = true, cmp.Or(proc.Cwd, "/")
	w, err := k.connect(e, r, proc)
	if err != nil {
		e.out.close()
		return err
	}
	keep := false
	defer func() {
		w.closeTheirs()
		if !keep {
			w.closeOurs()
			e.out.close()
		}
	}()

	k.spawn.RLock()
	defer k.spawn.RUnlock()
	lc, err := libcontainer.Create(k.libDir(), r.ID, config)
	if err != nil {
		return fmt.Errorf("creating container: %w", err)
	}
	executed, err := watchExecve(proc)
	if err != nil {
		return err
	}
	defer executed.close()
	if err := lc.Run(proc); err != nil {
		return fmt.Errorf("starting %q: %w", r.Spec.Args[0], err)
	}
	executed.wait(ctx)
	pid, err := proc.Pid()
	if err != nil {
		return err
	}
	k.own(pid, true)
	fail := func(err error) error {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = proc.Wait()
		k.own(pid, false)
		return err
	}
	if err := w.takeTerminal(e, r, k.pool); err != nil {
		return fail(err)
	}
	start, err := processStart(pid)
	if err != nil {
		return fail(err)
	}
	held, err := holdProcess(pid, start)
	if err != nil {
		return fail(err)
	}
	now, err := e.update(func(r *Record) { r.Started, r.Pid, r.PidStart = time.Now(), pid, start })
	if err != nil {
		_ = held.file.Close()
		return fail(err)
	}
	keep = true
	k.opts.Changed(Change{ID: r.ID, Step: StepStarted, Record: now})
	k.attend(e, held, w)
	return nil
}

// config translates a spec. libcontainer reads the ids of a user namespace with a process in it.
func (k *Supervisor) config(s *Spec, dir string) (*configs.Config, error) {
	if s.UserNS != "" {
		k.spawn.RLock()
		defer k.spawn.RUnlock()
	}
	return s.config(k.profile, dir)
}

// An execveWatch reports when a new process has executed the container's program.
// libcontainer returns as soon as it has let the process go on to execve. Until
// execve is done, the process has the signal handlers of libcontainer's init, and
// the kernel drops a SIGTERM: it delivers signals to process 1 of a PID namespace
// only if that has a handler for them. The process inherits the writing end of a
// pipe, which [Init] makes close-on-exec, so the reading end is at its end once
// execve has succeeded or the process is dead.
type execveWatch struct{ reader, writer *os.File }

// watchExecve adds the pipe to the process, which must not be started yet.
func watchExecve(proc *libcontainer.Process) (*execveWatch, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	proc.ExtraFiles = []*os.File{w} // descriptor execveFD
	return &execveWatch{reader: r, writer: w}, nil
}

// wait returns when execve is done, or with ctx: execve may hang on a file system
// that does not answer. Then the container counts as started nevertheless.
func (w *execveWatch) wait(ctx context.Context) {
	_ = w.writer.Close()
	defer context.AfterFunc(ctx, func() { _ = w.reader.SetReadDeadline(time.Unix(1, 0)) })()
	_, _ = w.reader.Read(make([]byte, 1))
}

func (w *execveWatch) close() {
	_ = w.writer.Close()
	_ = w.reader.Close()
}

// attend waits for a running container until it ends or the supervisor stops.
func (k *Supervisor) attend(e *entry, held *process, w *wires) {
	e.mu.Lock()
	e.proc, e.streams, e.stdin = held, w.streams, w.stdin
	e.mu.Unlock()
	id := e.snapshot().ID
	if err := k.store.put(id, append([]*os.File{held.file}, w.files()...)); err != nil {
		k.opts.Log.Warn("a container's exit code and output may be lost if this process is killed", "container", id, "err", err)
	}
	k.mu.Lock()
	group := k.group
	k.mu.Unlock()
	dead := make(chan struct{})
	var carriers sync.WaitGroup
	for _, s := range w.streams {
		carriers.Add(1)
		if !group.Go(func(ctx context.Context) { defer carriers.Done(); s.carry(ctx, dead) }) {
			carriers.Done()
		}
	}
	group.Go(func(ctx context.Context) {
		code, known, err := held.wait(ctx)
		if err != nil {
			return // the supervisor stops; the container keeps running
		}
		finished := time.Now()
		r := e.snapshot()
		exit := Exit{Code: code, Finished: finished}
		switch {
		case !known:
			exit.Code, exit.Reason = UnknownCode, ReasonUnknown
			exit.Message = "the exit code is unknown: the container was started by an earlier runtime process, and the kernel doesn't report it"
		case code == 0:
			exit.Reason = ReasonCompleted
		case oomKills(r.Spec.Cgroup) > 0:
			exit.Reason = ReasonOOMKilled
		default:
			exit.Reason = ReasonError
		}
		if r.Spec.sharesPIDs() {
			signalCgroup(r.Spec.Cgroup, unix.SIGKILL) // K4; otherwise the kernel has done it
		}
		close(dead)
		for _, s := range w.streams {
			s.wake()
		}
		carriers.Wait()
		k.store.drop(r.ID)
		_ = held.file.Close()
		w.closeOurs()
		k.own(r.Pid, false)
		k.removeLib(&r)
		k.ended(e, exit)
	})
}

// ended records that a container has ended: first on disk, then it reports it (K1).
func (k *Supervisor) ended(e *entry, exit Exit) {
	if err := save(filepath.Join(e.dir, exitFile), &exit); err != nil {
		// Report the exit code to the current clients; after a restart it will be
		// unknown.
		k.opts.Log.Error("an exit code couldn't be written", "container", e.record.ID, "err", err)
	}
	e.mu.Lock()
	e.record.Exit = &exit
	e.proc, e.streams, e.stdin = nil, nil, nil
	r := e.record
	e.mu.Unlock()
	e.out.close()
	k.opts.Changed(Change{ID: r.ID, Step: StepStopped, Record: r})
	close(e.gone)
}

// removeLib removes the state of libcontainer and the kernel for a container whose
// processes have ended.
func (k *Supervisor) removeLib(r *Record) {
	if lc, err := libcontainer.Load(k.libDir(), r.ID); err == nil {
		if err := lc.Destroy(); err == nil {
			return
		}
	}
	if err := KillCgroup(r.Spec.Cgroup); err != nil {
		k.opts.Log.Error("a container's processes are still there", "container", r.ID, "err", err)
	}
	if err := RemoveCgroup(r.Spec.Cgroup); err != nil {
		k.opts.Log.Error("a container's cgroup is still there", "container", r.ID, "err", err)
	}
	_ = os.RemoveAll(filepath.Join(k.libDir(), r.ID))
}

// own records whether a goroutine waits for the process with this pid.
func (k *Supervisor) own(pid int, yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if yes {
		k.owned[pid] = true
	} else {
		delete(k.owned, pid)
	}
}

// applyLimits sets new limits of a running container in the kernel.
func (k *Supervisor) applyLimits(r *Record, spec *Spec) error {
	enforced, err := k.enforceable(spec)
	if err != nil {
		return err
	}
	config, err := k.config(enforced, k.containerDir(r.ID))
	if err != nil {
		return err
	}
	lc, err := libcontainer.Load(k.libDir(), r.ID)
	if err != nil {
		return err
	}
	now := lc.Config()
	cgroup := *now.Cgroups
	cgroup.Resources = config.Cgroups.Resources
	now.Cgroups = &cgroup
	if err := lc.Set(now); err != nil {
		return err
	}
	path := "/proc/" + strconv.Itoa(r.Pid) + "/oom_score_adj"
	return os.WriteFile(path, []byte(strconv.Itoa(spec.Resources.OOMScoreAdj)), 0)
}

// Stats returns the resources that a running container uses.
func (k *Supervisor) Stats(id string) (Usage, error) {
	r, err := k.Get(id)
	if err != nil {
		return Usage{}, err
	}
	if r.State() != Running {
		return Usage{}, fmt.Errorf("container %s is not running: %w", id, ErrState)
	}
	u, err := CgroupUsage(r.Spec.Cgroup)
	if err != nil {
		return Usage{}, fmt.Errorf("container %s: %w", id, err)
	}
	return u, nil
}

// CgroupUsage returns the resources that the processes in the cgroup at path and in all below it use.
func CgroupUsage(path string) (Usage, error) {
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{}})
	if err != nil {
		return Usage{}, err
	}
	s, err := m.GetStats()
	if err != nil {
		return Usage{}, fmt.Errorf("cgroup %s: %w", path, err)
	}
	inactive := s.MemoryStats.Stats["total_inactive_file"]
	rss := s.MemoryStats.Stats["total_rss"]
	if unified() {
		inactive, rss = s.MemoryStats.Stats["inactive_file"], s.MemoryStats.Stats["anon"]
	}
	used := s.MemoryStats.Usage.Usage
	if used == 0 { // no cgroup accounts for it
		used = resident(processes(path))
		rss = used
	}
	limit := s.MemoryStats.Usage.Limit
	if limit >= noMemoryLimit {
		limit = 0
	}
	return Usage{
		At: time.Now(), CPU: s.CpuStats.CpuUsage.TotalUsage, Memory: used, WorkingSet: used - min(used, inactive), RSS: rss, Limit: limit,
		PageFaults: s.MemoryStats.Stats["pgfault"], MajorPageFaults: s.MemoryStats.Stats["pgmajfault"],
		Processes: s.PidsStats.Current, Detail: detail(path, s),
	}, nil
}

// noMemoryLimit is less than what cgroup v1 shows for a cgroup without a limit, and more than any machine has.
const noMemoryLimit = 1 << 62

// Usage is the resource usage of a cgroup at one time.
type Usage struct {
	At         time.Time
	CPU        uint64 // nanoseconds of one core since the start; 0 if the kernel doesn't count them
	Memory     uint64 // bytes
	WorkingSet uint64 // bytes, without what could be dropped at once
	RSS        uint64 // bytes
	Limit      uint64 // of Memory, in bytes; 0 if there is none

	PageFaults, MajorPageFaults uint64
	Processes                   uint64

	Detail
}

func ints(in []uint32) []int {
	var out []int
	for _, v := range in {
		out = append(out, int(v))
	}
	return out
}
