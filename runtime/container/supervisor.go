package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// Options configures a [Supervisor]. Dir is required.
type Options struct {
	Dir     string       // state directory; it should not outlive the boot
	Logs    LogLimits    // the zero value means that logs grow without bound
	Changed func(Change) // called for each change, in order for one container; must not block; may be nil
	Log     *slog.Logger // nil means slog.Default
}

// A Change is one step in the life of a container.
type Change struct {
	ID     string
	Step   Step
	Record Record // as it was just after the change
}

// Step is what happened to a container.
type Step int

// The steps of a container's life.
const (
	StepCreated Step = iota
	StepStarted
	StepStopped
	StepDeleted
)

// ErrNotFound is returned if no container has the id.
var ErrNotFound = errors.New("no such container")

// ErrState is returned if a container is not in the state that an operation needs.
var ErrState = errors.New("wrong state")

// A Supervisor is the parent of the containers of one node. Its methods may be called
// concurrently while Run is running; operations on one container wait for each
// other.
type Supervisor struct {
	opts    Options
	profile *Profile
	leastOO int // smallest oom_score_adj that may be given
	pool    *sync.Pool
	store   *fdStore // set by Run; nil if there is none
	ready   chan struct{}

	warnOOM sync.Once
	spawn   sync.RWMutex  // held for reading while libcontainer has child processes
	spawns  chan struct{} // has an element for each command that is being started in a container

	mu         sync.Mutex
	containers map[string]*entry     // guarded by mu
	owned      map[int]bool          // guarded by mu; pids that a goroutine waits for
	group      *run.Group            // guarded by mu; nil unless running
	reported   map[string]bool       // guarded by mu; missing controllers that were logged
	fifos      map[string][]int      // guarded by mu; descriptors from before a restart in place
	held       map[string][]*os.File // guarded by mu; namespaces of pods, in the order of Pins.names
}

// entry is one container.
type entry struct {
	dir string
	out *logFile

	busy sync.Mutex // held while the container's state in the kernel changes; taken before mu

	mu      sync.Mutex
	record  Record        // guarded by mu
	proc    *process      // guarded by mu; nil unless running
	streams []*stream     // guarded by mu; of a container with a terminal the one stream of that
	stdin   *os.File      // guarded by mu; what attached clients write to; nil if the container has no open standard input
	gone    chan struct{} // closed once the exit is known and written; never replaced
}

// New returns a supervisor without containers; call [Supervisor.Run].
func New(opts Options) (*Supervisor, error) {
	if !filepath.IsAbs(opts.Dir) {
		return nil, fmt.Errorf("container: Options.Dir %q is not an absolute path", opts.Dir)
	}
	if opts.Logs.Size < 0 || opts.Logs.Size > 0 && opts.Logs.Files < 2 {
		return nil, fmt.Errorf("container: Options.Logs: want a size of at least 0 bytes and at least 2 files, got %d and %d", opts.Logs.Size, opts.Logs.Files)
	}
	if opts.Changed == nil {
		opts.Changed = func(Change) {}
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	profile, err := DefaultProfile()
	if err != nil {
		return nil, err
	}
	if profile == nil {
		opts.Log.Warn("this program was built without seccomp: containers run without a system call filter")
	}
	return &Supervisor{
		opts:       opts,
		profile:    profile,
		leastOO:    LeastOOMScoreAdj(),
		pool:       newPool(),
		ready:      make(chan struct{}),
		spawns:     make(chan struct{}, maxSpawns),
		containers: map[string]*entry{},
		owned:      map[int]bool{},
		reported:   map[string]bool{},
		held:       map[string][]*os.File{},
	}, nil
}

// Ready is closed when the containers of an earlier supervisor were found and new
// ones can be made.
func (k *Supervisor) Ready() <-chan struct{} { return k.ready }

// Run adopts the containers of an earlier supervisor in the state directory, and supervises
// them and the new ones until ctx is cancelled. The containers keep running after that:
// stop them before, or leave them to the next supervisor.
func (k *Supervisor) Run(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the parent of orphans: %w", err)
	}
	for _, dir := range []string{k.containerDir(""), k.libDir()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("container state: %w", err)
		}
	}
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	k.mu.Lock()
	k.group = group
	k.mu.Unlock()
	group.Go(k.reapStrangers)
	store, kept, err := openStore(k.opts.Dir, k.Spawning)
	if err != nil {
		k.opts.Log.Warn("if this process is killed, exit codes, output and terminals of containers will be lost: the process that keeps them could not be started", "err", err)
	}
	defer store.close()
	k.store = store
	if err := k.adopt(kept); err != nil {
		return err
	}
	close(k.ready)
	<-ctx.Done()
	return nil
}

func (k *Supervisor) containerDir(id string) string {
	return filepath.Join(k.opts.Dir, "containers", id)
}

// libDir is where libcontainer keeps its own state.
func (k *Supervisor) libDir() string { return filepath.Join(k.opts.Dir, "libcontainer") }

func (k *Supervisor) get(id string) (*entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.containers[id]; ok {
		return e, nil
	}
	return nil, fmt.Errorf("container %s: %w", id, ErrNotFound)
}

// Get returns the record of a container, or [ErrNotFound].
func (k *Supervisor) Get(id string) (Record, error) {
	e, err := k.get(id)
	if err != nil {
		return Record{}, err
	}
	return e.snapshot(), nil
}

// List returns all containers, the oldest first.
func (k *Supervisor) List() []Record {
	k.mu.Lock()
	entries := make([]*entry, 0, len(k.containers))
	for _, e := range k.containers {
		entries = append(entries, e)
	}
	k.mu.Unlock()
	records := make([]Record, 0, len(entries))
	for _, e := range entries {
		records = append(records, e.snapshot())
	}
	sorting.Slice(records, func(a, b Record) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return records
}

func (e *entry) snapshot() Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record
}

// update changes the record and writes it.
func (e *entry) update(change func(r *Record)) (Record, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.record
	change(&r)
	if err := save(filepath.Join(e.dir, recordFile), &r); err != nil {
		return e.record, err
	}
	e.record = r
	return r, nil
}

// Create makes a container of r, whose ID, Pod, Spec, LogPath and About are the
// caller's. Nothing runs yet. It fails if the spec is not valid or the id taken.
func (k *Supervisor) Create(r Record) error {
	if err := r.Spec.Validate(); err != nil {
		return err
	}
	r.Spec.Resources.OOMScoreAdj = k.clamp(r.Spec.Resources.OOMScoreAdj)
	r.Created = time.Now()
	dir := k.containerDir(r.ID)
	if err := os.Mkdir(dir, 0o711); err != nil {
		return fmt.Errorf("container state: %w", err)
	}
	e := &entry{dir: dir, record: r, out: k.newLogFile(r.LogPath), gone: make(chan struct{})}
	if err := save(filepath.Join(dir, recordFile), &r); err != nil {
		_ = os.RemoveAll(dir)
		return err
	}
	k.mu.Lock()
	k.containers[r.ID] = e
	k.mu.Unlock()
	k.opts.Changed(Change{ID: r.ID, Step: StepCreated, Record: r})
	return nil
}

// clamp raises an oom_score_adj to what this process may give.
func (k *Supervisor) clamp(adj int) int {
	if adj >= k.leastOO {
		return adj
	}
	k.warnOOM.Do(func() {
		k.opts.Log.Warn("an oom_score_adj below what this process may set is raised; CAP_SYS_RESOURCE would be needed",
			"asked", adj, "given", k.leastOO)
	})
	return k.leastOO
}

// Remove removes a container and its files except its log. A running one is killed.
// Removing one that does not exist is not an error.
func (k *Supervisor) Remove(ctx context.Context, id string) error {
	e, err := k.get(id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err := k.Stop(ctx, id, 0); err != nil {
		return err
	}
	e.busy.Lock()
	defer e.busy.Unlock()
	if _, err := k.get(id); err != nil {
		return nil // a concurrent call removed it
	}
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("removing container %s: %w", id, err)
	}
	e.out.close()
	k.mu.Lock()
	delete(k.containers, id)
	k.mu.Unlock()
	k.opts.Changed(Change{ID: id, Step: StepDeleted, Record: e.snapshot()})
	return nil
}

// Stop sends the container's stop signal and, after the grace period, SIGKILL. It returns
// once the container has ended and its exit is written, or when ctx is cancelled. It
// returns nil for a container that has ended, and does not change one that was never
// started.
func (k *Supervisor) Stop(ctx context.Context, id string, grace time.Duration) error {
	e, err := k.get(id)
	if err != nil {
		return err
	}
	e.busy.Lock() // not while it is being started
	e.mu.Lock()
	r, proc := e.record, e.proc
	e.mu.Unlock()
	e.busy.Unlock()
	if r.State() != Running {
		return nil
	}
	if grace > 0 {
		sig := stopSignal(r.Spec.StopSignal)
		if err := e.waitUntilSettled(ctx, &r, sig); err != nil {
			return err
		}
		if err := proc.signal(sig); err != nil {
			return fmt.Errorf("stopping container %s: %w", id, err)
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-e.gone:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	if r.Spec.sharesPIDs() {
		signalCgroup(r.Spec.Cgroup, unix.SIGKILL) // the first process takes the others with it otherwise
	}
	if err := proc.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("killing container %s: %w", id, err)
	}
	select {
	case <-e.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container %s doesn't die of SIGKILL: %w", id, context.Cause(ctx))
	}
}

// settleTime is how old a container must be to get a stop signal that its first
// process does not handle. Programs install their handlers within milliseconds
// after execve; on a busy machine it takes longer. Runtimes that execute a program
// for each signal have such a delay without asking for it.
const settleTime = 100 * time.Millisecond

// waitUntilSettled delays a stop signal that the kernel would drop because the
// container's program has only just begun: process 1 of a PID namespace gets a
// signal only if it has a handler for it. A program that has not installed one
// when the container is settleTime old is taken for one that will not.
func (e *entry) waitUntilSettled(ctx context.Context, r *Record, sig unix.Signal) error {
	left := time.Until(r.Started.Add(settleTime))
	if r.Spec.sharesPIDs() || left <= 0 || left > settleTime || handles(r.Pid, sig) {
		return nil // left > settleTime: the clock was set back
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.gone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// stopSignal understands SIGTERM, TERM, 15, SIGRTMIN+3 and SIGRTMAX-1. Any other
// value of an image means SIGTERM.
func stopSignal(name string) unix.Signal {
	const rtMin, rtMax = 34, 64 // as the C library counts
	full := "SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if s := unix.SignalNum(full); s != 0 {
		return s
	}
	number := 0
	if rest, ok := strings.CutPrefix(full, "SIGRTMIN"); ok {
		plus, _ := strconv.Atoi(rest)
		number = rtMin + plus
	} else if rest, ok := strings.CutPrefix(full, "SIGRTMAX"); ok {
		minus, _ := strconv.Atoi(rest)
		number = rtMax + minus
	} else {
		number, _ = strconv.Atoi(name)
	}
	if number < 1 || number > rtMax {
		return unix.SIGTERM
	}
	return unix.Signal(number)
}

// ReopenLog creates the container's log at its path again, for a rotation.
func (k *Supervisor) ReopenLog(id string) error {
	e, err := k.get(id)
	if err != nil {
		return err
	}
	if state := e.snapshot(); state.State() != Running {
		return fmt.Errorf("container %s is not running: %w", id, ErrState)
	}
	return e.out.reopen()
}

// Update replaces the limits of a container, running or not.
func (k *Supervisor) Update(id string, res Resources) error {
	e, err := k.get(id)
	if err != nil {
		return err
	}
	e.busy.Lock()
	defer e.busy.Unlock()
	r := e.snapshot()
	if r.State() == Exited {
		return fmt.Errorf("container %s has ended: %w", id, ErrState)
	}
	res.OOMScoreAdj = k.clamp(res.OOMScoreAdj)
	spec := r.Spec
	spec.Resources = res
	if r.State() == Running {
		if err := k.applyLimits(&r, &spec); err != nil {
			return fmt.Errorf("container %s: changing limits: %w", id, err)
		}
	}
	_, err = e.update(func(r *Record) { r.Spec = spec })
	return err
}
