package local

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// An Instance is a cluster that runs, or did until its machine or process died.
type Instance struct {
	Name    string  `json:"name"`
	Version string  `json:"version"`
	Process Process `json:"process"`
	Runtime Runtime `json:"runtime"` // the container runtime; zero if there is none

	Server         string        `json:"server"` // URL of the API server
	Nodes          []string      `json:"nodes"`
	Simulated      bool          `json:"simulated,omitempty"`
	Shared         bool          `json:"shared,omitempty"` // its process runs other clusters as well
	Member         bool          `json:"member,omitempty"` // a node of a cluster whose API server is on another machine
	ServiceNetwork string        `json:"serviceNetwork"`
	DataDir        string        `json:"dataDir"`
	Started        time.Time     `json:"started"`
	ReadyAfter     time.Duration `json:"readyAfter"`       // nanoseconds
	Expires        time.Time     `json:"expires,omitzero"` // when it ends by itself; zero: never

	Warnings []string `json:"warnings,omitempty"` // of a start: parts that do not work in full, with advice

	// Damage is the fault of the state file, if its contents are damaged. Then the fields Name, Process, Runtime,
	// DataDir and Simulated are known from elsewhere, and no others.
	Damage string `json:"-"`
}

// A Runtime is the container runtime of a cluster, and the data to clean up
// after it. It is written down by itself, each time that one starts, because it
// may outlive the cluster that started it.
type Runtime struct {
	Process
	Program        string `json:"program,omitempty"` // path
	DataDir        string `json:"dataDir,omitempty"` // of the cluster
	PodNetwork     string `json:"podNetwork,omitempty"`
	NodeNetwork    string `json:"nodeNetwork,omitempty"` // the part of it that is this node's
	ServiceNetwork string `json:"serviceNetwork,omitempty"`
	Endpoint       string `json:"endpoint,omitempty"` // of a runtime that is not ours; then there is no process
}

// Alive reports whether containers of the cluster may be running: the runtime's process runs, or others run it.
func (r Runtime) Alive() bool { return r.Endpoint != "" || r.Process.Alive() }

func (p Profile) instanceFile() string { return filepath.Join(p.RunDir, "instance.json") }

func (p Profile) runtimeFile() string { return filepath.Join(p.RunDir, "runtime.json") }

// Instance returns the cluster's record of itself, and whether it runs.
// A cluster that was never started, or was stopped, has none; one that died
// while it started may have nothing but its Runtime. What damaged files have is
// found out otherwise: see [Instance.Damage].
func (p Profile) Instance() (i Instance, running bool, err error) {
	if i, ok := p.keptInstance(); ok {
		return i, true, nil
	}
	err = read(p.instanceFile(), &i)
	if err == nil && i.Process.PID == 0 {
		err = nameless(p.instanceFile())
	}
	if damage, ok := errors.AsType[*damageError](err); ok {
		i, err = p.recoverInstance(damage)
	}
	if err != nil {
		return Instance{}, false, fmt.Errorf("reading the state of cluster %s: %w", p.Name, err)
	}
	err = read(p.runtimeFile(), &i.Runtime)
	if err == nil && i.Runtime.PID == 0 && i.Runtime.Endpoint == "" {
		err = nameless(p.runtimeFile())
	}
	if damage, ok := errors.AsType[*damageError](err); ok {
		i.Runtime, err = p.recoverRuntime(damage)
	}
	if err != nil {
		return Instance{}, false, fmt.Errorf("reading the state of the container runtime of cluster %s: %w", p.Name, err)
	}
	return i, i.Process.Alive(), nil
}

// Exists reports whether the cluster has left anything that can be stopped.
func (i Instance) Exists() bool {
	return i.Process.PID != 0 || i.Runtime.PID != 0 || i.Runtime.Endpoint != "" || i.Runtime.Program != "" || i.Damage != ""
}

// Starting reports whether the cluster, if it runs, is not ready yet.
func (i Instance) Starting() bool { return i.ReadyAfter == 0 }

// At returns the profile with the data directory that the instance uses, wherever
// that was.
func (p Profile) At(i Instance) Profile {
	p.DataDir = cmp.Or(i.DataDir, i.Runtime.DataDir, p.DataDir)
	return p
}

// starterFile is where a process that starts the cluster is written down.
func (p Profile) starterFile(pid int) string {
	return filepath.Join(p.RunDir, fmt.Sprintf("starter-%d.json", pid))
}

// announce writes down that the calling process starts the cluster, until the result is
// called: the cluster itself is not there yet, or has not written down anything.
func (p Profile) announce() (end func(), err error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	file := p.starterFile(self.PID)
	if err := p.write(file, self); err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(file)
		_ = os.Remove(p.RunDir) // unless there is anything in it
	}, nil
}

// Starters returns the processes that are starting the cluster now, whether or not the
// state file exists yet. Such a process stops its cluster on SIGTERM.
func (p Profile) Starters() ([]Process, error) {
	files, err := filepath.Glob(filepath.Join(p.RunDir, "starter-*.json"))
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, file := range files {
		var s Process
		err := read(file, &s)
		if _, ok := errors.AsType[*damageError](err); ok {
			var pid int
			_, _ = fmt.Sscanf(filepath.Base(file), "starter-%d.json", &pid)
			if _, gone := ProcessOf(pid); gone != nil {
				continue
			}
			err = fmt.Errorf("%w; if process %d is no `sampan up`, remove the file", err, pid)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the process that starts cluster %s: %w", p.Name, err)
		}
		if s.Alive() {
			found = append(found, s)
		}
	}
	return found, nil
}

// Save writes an instance down, but for its Runtime.
func (p Profile) Save(i Instance) error {
	i.Runtime = Runtime{}
	if err := p.write(p.instanceFile(), i); err != nil {
		return err
	}
	if i.Simulated {
		data, err := json.Marshal(i)
		if err == nil {
			err = replace(p.keptFile(), data)
		}
		if err != nil && !NoSpace(err) {
			return fmt.Errorf("writing the state of the cluster: %w", err)
		}
	}
	return nil
}

// keptFile has the same as instanceFile, of a cluster with simulated nodes. The run directory of a user without root
// is where the environment says, which differs between sessions, and is removed when the user logs out; the data
// directory stays.
func (p Profile) keptFile() string { return filepath.Join(p.DataDir, "instance.json") }

// keptInstance returns the running instance that has the data, if there is no state file about it in the run directory.
func (p Profile) keptInstance() (i Instance, ok bool) {
	if _, err := os.Lstat(p.instanceFile()); err == nil {
		return i, false
	}
	if read(p.keptFile(), &i) != nil || i.Name != p.Name || !i.Process.Alive() {
		return Instance{}, false
	}
	// The file may come from a copy of the directory.
	owner, err := lockOwner(filepath.Join(p.DataDir, "store", "lock"))
	return i, err == nil && owner == i.Process
}

// SaveRuntime writes down which process is the container runtime.
func (p Profile) SaveRuntime(r Runtime) error { return p.write(p.runtimeFile(), r) }

// A damageError says that a file does not have the contents that it should have.
type damageError struct {
	file string
	err  error
}

func (e *damageError) Error() string { return fmt.Sprintf("%s %v", e.file, e.err) }

func (e *damageError) Unwrap() error { return e.err }

// mostState is how many bytes a state file has at most.
const mostState = 1 << 20

// read fills in v from a file; one that is not there changes nothing. The error is a [damageError] if it is about the
// contents.
func read(file string, v any) error {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return denied(file, err)
	}
	if !info.Mode().IsRegular() { // reading a pipe would block
		return &damageError{file, errors.New("is not a regular file")}
	}
	if info.Size() > mostState {
		return &damageError{file, fmt.Errorf("is larger than %d bytes", mostState)}
	}
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return denied(file, err)
	case len(bytes.TrimSpace(data)) == 0:
		return &damageError{file, errors.New("is empty")}
	case string(bytes.TrimSpace(data)) == "null": // the decoder takes it for anything
		return &damageError{file, errors.New("is damaged: it has null instead of an object")}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return &damageError{file, fmt.Errorf("is damaged: %w", err)}
	}
	return nil
}

// nameless returns the [damageError] of a file that is JSON, but names no process. A file that does not exist is not
// damaged.
func nameless(file string) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &damageError{file, errors.New("is damaged: it names no process")}
}

// denied returns the error of reading a file, and if permission was denied, whose file or directory it is.
func denied(file string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for {
		if info, statErr := os.Stat(file); statErr == nil {
			if uid, ok := ownerOf(info); ok {
				return fmt.Errorf("%w; %s belongs to the user with ID %d: run the command as that user", err, file, uid)
			}
		}
		dir := filepath.Dir(file)
		if dir == file {
			return err
		}
		file = dir
	}
}

// MakeRunDir makes the directory of the running cluster. All users may pass through it, to files that they may open:
// the processes of pods with users of their own begin below it.
func (p Profile) MakeRunDir() error {
	const mode = 0o711
	if err := os.MkdirAll(p.RunDir, mode); err != nil {
		if base := os.Getenv(runtimeDirVariable); os.Getuid() != 0 && base != "" {
			return fmt.Errorf("making the run directory: %w; it is below the directory that the variable %s names, %s: set that to a directory of yours, or unset it", err, runtimeDirVariable, base)
		}
		return fmt.Errorf("making the run directory: %w", err)
	}
	for _, dir := range []string{filepath.Dir(p.RunDir), p.RunDir} {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("making the run directory: %w", err)
		}
		if info.Mode().Perm() == 0o700 { // made by an earlier version
			if err := os.Chmod(dir, mode); err != nil {
				return fmt.Errorf("making the run directory: %w", err)
			}
		}
	}
	return nil
}

// write makes a file that a reader sees whole or not at all.
func (p Profile) write(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := p.MakeRunDir(); err != nil {
		return err
	}
	if err := replace(file, data); err != nil {
		return fmt.Errorf("writing the state of the cluster: %w", err)
	}
	return nil
}

// Memory returns the proportional set size of the cluster's own processes, in bytes:
// private memory, and shared memory divided by the number of processes that share it.
// Pods are not counted.
func (i Instance) Memory() (int64, error) {
	var sum int64
	for _, p := range []Process{i.Process, i.Runtime.Process} {
		if p.PID == 0 {
			continue
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
				if err != nil {
					return 0, fmt.Errorf("memory of process %d: %w", p.PID, err)
				}
				sum += kib << 10
			}
		}
	}
	return sum, nil
}
