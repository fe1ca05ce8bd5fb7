package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// MaxClusters bounds how many clusters one process runs.
const MaxClusters = 500

// FleetNames returns the names of a number of clusters that are started together: PREFIX-1 and so on.
func FleetNames(prefix string, clusters int) ([]string, error) {
	if clusters < 1 || clusters > MaxClusters {
		return nil, fmt.Errorf("--clusters: must be a number from 1 to %d, got %d", MaxClusters, clusters)
	}
	var names []string
	for i := range clusters {
		name := prefix + "-" + strconv.Itoa(i+1)
		if err := checkName(name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// InFleet reports whether a name is one of those of clusters that are started together: PREFIX-1 and so on.
func InFleet(name, prefix string) bool {
	number, ok := strings.CutPrefix(name, prefix+"-")
	n, err := strconv.Atoi(number)
	return ok && err == nil && n >= 1 && n <= MaxClusters && strconv.Itoa(n) == number
}

// Fleet returns the prefix of the clusters that the cluster was first started with, or "" if it was started alone. It
// reports false if the cluster was not started yet.
func (p Profile) Fleet() (prefix string, started bool, err error) {
	s, started, err := p.savedSettings()
	return s.Fleet, started, err
}

// A Started is the result of the start of one of several clusters.
type Started struct {
	Profile  Profile
	Instance Instance
	Err      error // nil: it is ready
}

// StartFleet runs the program with the given arguments in the background, as [Start] does, for clusters that it runs
// in one process. It blocks until each of them is ready or has failed, and returns the results in their order. The
// error is about the program.
func StartFleet(ctx context.Context, all []Profile, program string, args []string, step func(string)) ([]Started, error) {
	for _, p := range all {
		started, err := p.starting()
		if err != nil {
			return nil, err
		}
		defer func() {
			started()
			_ = os.Remove(p.DataDir) // if it was made above, and nothing was started in it
		}()
		announced, err := p.announce()
		if err != nil {
			return nil, err
		}
		defer announced()
	}
	results := make([]Started, len(all))
	for i, p := range all {
		results[i] = Started{Profile: p, Err: errExited}
	}
	// What the program says that is about no cluster, such as a panic, is in the first one's log.
	err := inBackground(ctx, all[0], program, args, func(r io.Reader) error {
		return followFleet(r, results, step)
	})
	return results, err
}

// inBackground runs the program in its own session, and returns the error of follow, which reads its reports.
func inBackground(ctx context.Context, p Profile, program string, args []string, follow func(io.Reader) error) error {
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if NoSpace(err) { // the cluster is more important than its log
		log, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()

	// Not CommandContext: the program must outlive this one.
	cmd := exec.Command(program, args...) //nolint:noctx // see above
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w} // reportFD
	cmd.SysProcAttr = ownSession()
	cmd.Dir = "/"
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	if err := follow(r); err != nil {
		_ = cmd.Wait() // it has closed its end of the pipe because it ends
		if errors.Is(err, errExited) {
			err = fmt.Errorf("%w%s", err, causeOfEnd(cmd.ProcessState))
		}
		return err
	}
	return cmd.Process.Release()
}

// followFleet reads the reports about several clusters until the last one of each.
func followFleet(r io.Reader, results []Started, step func(string)) error {
	at := map[string]*Started{}
	for i := range results {
		at[results[i].Profile.Name] = &results[i]
	}
	lines := bufio.NewScanner(r)
	for len(at) > 0 && lines.Scan() {
		var rep Report
		if err := json.Unmarshal(lines.Bytes(), &rep); err != nil {
			return fmt.Errorf("the clusters reported %q: %w", lines.Text(), err)
		}
		one := at[rep.Name]
		switch {
		case rep.Error != "" && one == nil:
			return errors.New(rep.Error)
		case rep.Error != "":
			one.Err = errors.New(rep.Error)
		case rep.Ready != nil && one != nil:
			one.Instance, one.Err = *rep.Ready, nil
		case step != nil:
			step(rep.Name + ": " + rep.Step)
			continue
		default:
			continue
		}
		delete(at, rep.Name)
	}
	for i := range results {
		if results[i].Err == nil {
			return nil // the program runs
		}
	}
	return errExited
}

// Share returns a function that makes reporters about several clusters, one for each of them. The pipe to the process
// that started this one is closed after the last report about each of them.
func (r Reporter) Share(clusters int) func(name string) Reporter {
	if r.w == nil {
		return func(string) Reporter { return Reporter{} }
	}
	s := &sharedPipe{w: r.w, left: clusters}
	return func(name string) Reporter { return Reporter{w: &pipeShare{pipe: s}, name: name} }
}

// A sharedPipe is written by several reporters.
type sharedPipe struct {
	mu   sync.Mutex
	w    io.WriteCloser
	left int // reporters that are not closed; guarded by mu
}

// A pipeShare is one reporter's end of a sharedPipe.
type pipeShare struct {
	pipe   *sharedPipe
	closed bool // guarded by pipe.mu
}

// Write implements [io.Writer]. Reports after the last one are dropped.
func (p *pipeShare) Write(line []byte) (int, error) {
	p.pipe.mu.Lock()
	defer p.pipe.mu.Unlock()
	if p.closed {
		return len(line), nil
	}
	return p.pipe.w.Write(line)
}

// Close implements [io.Closer].
func (p *pipeShare) Close() error {
	p.pipe.mu.Lock()
	defer p.pipe.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if p.pipe.left--; p.pipe.left > 0 {
		return nil
	}
	return p.pipe.w.Close()
}

// Notify returns a reporter that also calls last after the last report, once.
func (r Reporter) Notify(last func()) Reporter {
	return Reporter{w: &notifier{w: r.w, last: sync.OnceFunc(last)}, name: r.name}
}

type notifier struct {
	w    io.WriteCloser // nil: nothing is written
	last func()
}

// Write implements [io.Writer].
func (n *notifier) Write(line []byte) (int, error) {
	if n.w == nil {
		return len(line), nil
	}
	return n.w.Write(line)
}

// Close implements [io.Closer].
func (n *notifier) Close() error {
	defer n.last()
	if n.w == nil {
		return nil
	}
	return n.w.Close()
}

// A cluster that shares its process with others can't be stopped by a signal. It listens on a unix socket, in a
// directory that only its user may enter: a connection requests its end, and is closed when the cluster has ended and
// its run directory is removed.

func (p Profile) controlDir() string { return filepath.Join(p.RunDir, "control") }

func (p Profile) stopSocket() string { return filepath.Join(p.controlDir(), "stop.sock") }

// AcceptStop calls stop when another process requests the end of the cluster by [Profile.StopShared]. The caller calls
// ended when the cluster has ended, which answers these processes. The error says that there can be no such requests.
func (p Profile) AcceptStop(ctx context.Context, stop func()) (ended func(), err error) {
	if err := p.MakeRunDir(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.controlDir(), 0o700); err != nil {
		return nil, err
	}
	_ = os.Remove(p.stopSocket()) // of a process that was killed
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", p.stopSocket())
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var waiting []net.Conn
	accepting := run.NewGroup(ctx, 0)
	accepting.Go(func(context.Context) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			waiting = append(waiting, c)
			mu.Unlock()
			stop()
		}
	})
	return func() {
		_ = l.Close()
		accepting.Wait()
		for _, c := range waiting {
			_ = c.Close()
		}
	}, nil
}

// StopShared ends a cluster that shares its process with others, and blocks until it has ended, for at most the time of
// patience. A cluster whose process is gone has ended.
func (p Profile) StopShared(ctx context.Context, i Instance, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", p.stopSocket())
	if err == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		if _, err = c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || !i.Process.Alive() {
			return nil
		}
	}
	if now, running, instanceErr := p.Instance(); instanceErr == nil && (!running || now.Process != i.Process) {
		return nil // it has ended meanwhile
	}
	return fmt.Errorf("cluster %s does not stop (%w); it runs in process %d beside others, and `kill %d` ends all of them", p.Name, err, i.Process.PID, i.Process.PID)
}
