package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sampan-io/sampan/internal/filelock"
)

// The files in the run directory say which processes a cluster has, and little that is not known otherwise: the process that
// serves it holds the lock of its store, the container runtime holds the lock of its state directory, the rest are settings. So
// a file whose contents are damaged costs nothing but what status prints.

// recoverInstance returns the known state of a cluster whose state file is damaged. It is an error if that is not enough to say
// whether it runs.
func (p Profile) recoverInstance(damage *damageError) (Instance, error) {
	p, err := p.lastStarted(damage)
	if err != nil {
		return Instance{}, err
	}
	m, member, err := p.Member()
	if err != nil {
		return Instance{}, err
	}
	if member { // its process holds no lock
		return Instance{}, fmt.Errorf("%w; the file names the process `sampan agent` of node %s: stop that process, if there is one, and remove the file; nothing else is lost", damage, m.Settings.NodeName)
	}
	s, _, _ := p.savedSettings() // if they are damaged, too, then the cluster can still be stopped
	process, err := lockOwner(filepath.Join(p.DataDir, "store", "lock"))
	if err != nil {
		return Instance{}, fmt.Errorf("%w; %w", damage, err)
	}
	// Only root can run a real node.
	return Instance{Name: p.Name, Process: process, Simulated: s.Simulated() || os.Getuid() != 0, DataDir: p.DataDir, Damage: damage.Error()}, nil
}

// Unrecorded returns an error if a process restores the cluster, or has its store open, although no state file on this machine names it. The
// file was removed, or the process has not written it yet; neither is a reason to stop a process.
func (p Profile) Unrecorded() error {
	if err := p.restoring(); err != nil {
		return err
	}
	owner, err := lockOwner(filepath.Join(p.DataDir, "store", "lock"))
	if err != nil || owner == (Process{}) {
		return err
	}
	others, _ := p.running() // one whose state cannot be read is not known to have the process
	if slices.ContainsFunc(others, func(f Found) bool { return f.Instance.Process.PID == owner.PID }) {
		return nil // that of a cluster with another name
	}
	return fmt.Errorf("cluster %s: process %d has the data in %s open, but the state file %s does not exist; if that process is not about to write the file, stop it with `kill %[2]d`, and repeat the command",
		p.Name, owner.PID, p.DataDir, p.instanceFile())
}

// recoverRuntime returns the known state of a container runtime whose state file is damaged.
func (p Profile) recoverRuntime(damage *damageError) (Runtime, error) {
	p, err := p.lastStarted(damage)
	if err != nil {
		return Runtime{}, err
	}
	m, member, err := p.Member()
	if err != nil {
		return Runtime{}, err
	}
	s := m.Settings
	if !member {
		if s, _, err = p.savedSettings(); err != nil {
			return Runtime{}, fmt.Errorf("%w; %w", damage, err)
		}
	}
	r := Runtime{DataDir: p.DataDir, PodNetwork: s.Pods.String(), ServiceNetwork: s.Services.String(), Endpoint: s.RuntimeEndpoint}
	var own []string
	for _, n := range m.Networks {
		own = append(own, n.String())
	}
	r.NodeNetwork = strings.Join(own, ",")
	if s.Simulated() || r.Endpoint != "" {
		return r, nil
	}
	if r.Process, err = lockOwner(filepath.Join(p.RuntimeState(), "lock")); err != nil {
		return Runtime{}, fmt.Errorf("%w; %w", damage, err)
	}
	program := filepath.Join(p.DataDir, "bin", "sampan-runtime")
	if _, err := os.Stat(program); err == nil {
		r.Program = program
	}
	return r, nil
}

// lastStarted returns the profile with the data directory of the last start. Without a record of it that is the default one or that of
// --data-dir.
func (p Profile) lastStarted(damage *damageError) (Profile, error) {
	recorded, err := p.Recorded()
	if err != nil {
		return p, fmt.Errorf("%w; %w", damage, err)
	}
	dirs := []string{recorded}
	if recorded == "" {
		dirs = []string{p.Default, p.DataDir}
	}
	for _, dir := range dirs {
		if dir != "" && p.holdsIn(dir) {
			p.DataDir = dir
			return p, nil
		}
	}
	return p, fmt.Errorf("%w; pass the directory with the data of cluster %s with --data-dir, or if it does not run, remove the file: nothing else is lost", damage, p.Name)
}

// lockOwner returns the process that holds the lock on a file and has written its process ID there, or the zero Process if no process
// holds it. It takes the lock for a moment only if the file does not name a process that has ended: a process that starts right
// now would find it in use.
func lockOwner(file string) (Process, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Process{}, nil
	}
	if err != nil {
		return Process{}, fmt.Errorf("finding the process that holds a lock: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostID))
	if err != nil {
		return Process{}, fmt.Errorf("finding the process that holds a lock: %w", err)
	}
	pid, unnamed := strconv.Atoi(strings.TrimSpace(string(text)))
	var owner Process
	if unnamed == nil {
		if owner, err = ProcessOf(pid); err != nil {
			return Process{}, nil // it has ended
		}
	}
	err = filelock.TryShare(f)
	switch {
	case err == nil:
		return Process{}, nil // closing f releases it
	case !errors.Is(err, filelock.ErrLocked):
		return Process{}, fmt.Errorf("finding the process that holds the lock %s: %w", file, err)
	case unnamed != nil:
		return Process{}, fmt.Errorf("a process holds the lock %s, but the file does not have its process ID: stop the process that `fuser %[1]s` prints, and repeat the command", file)
	}
	return owner, nil
}

// mostID is how many bytes the text of a process ID has at most, with a line break.
const mostID = 32
