package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// adopt finds the containers of an earlier supervisor. kept are the descriptors that the store has of them: a pidfd,
// and those of [wires.files].
func (k *Supervisor) adopt(kept map[string][]int) error {
	defer func() {
		for _, fds := range kept {
			closeAll(fds)
		}
	}()
	k.takeHeld(kept)
	dirs, err := os.ReadDir(k.containerDir(""))
	if err != nil {
		return fmt.Errorf("container state: %w", err)
	}
	k.mu.Lock()
	handed := k.fifos
	k.fifos = nil
	k.mu.Unlock()
	for _, d := range dirs {
		dir := k.containerDir(d.Name())
		r, err := loadRecord(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// The supervisor was killed while it created or removed this one.
			_ = os.RemoveAll(dir)
			continue
		case err != nil:
			return fmt.Errorf("%w; remove %s to go on without this container", err, dir)
		}
		e := &entry{dir: dir, record: *r, out: k.newLogFile(r.LogPath), gone: make(chan struct{})}
		k.mu.Lock()
		k.containers[r.ID] = e
		k.mu.Unlock()
		if err := k.resume(e, r, handed[r.ID], kept[r.ID]); err != nil {
			return fmt.Errorf("container %s: %w", r.ID, err)
		}
	}
	k.store.trim()
	return nil
}

// resume takes up a container where an earlier supervisor left it. handed are the descriptors that the supervisor
// handed over in this process, stored those of the store, which the caller closes.
func (k *Supervisor) resume(e *entry, r *Record, handed, stored []int) error {
	switch {
	case r.Exit != nil:
		close(e.gone)
		return nil
	case r.Pid == 0 && !r.Starting:
		return nil
	}
	lost := func(message string) {
		k.removeLib(r)
		k.ended(e, Exit{Code: UnknownCode, Reason: ReasonUnknown, Message: message, Finished: time.Now()})
	}
	if r.Pid == 0 {
		lost("the runtime was killed while it started this container")
		return nil
	}
	held, err := holdProcess(r.Pid, r.PidStart)
	if errors.Is(err, errGone) && len(stored) > 0 {
		held, err = holdEnded(r.Pid, stored[0])
	}
	if errors.Is(err, errGone) {
		lost("the container ended while no runtime was watching")
		return nil
	}
	if err != nil {
		return err
	}
	if err := e.out.reopen(); err != nil {
		k.opts.Log.Error("container output is being lost", "container", r.ID, "err", err)
	}
	if len(handed) == 0 && len(stored) > 0 {
		handed = dupAll(stored[1:])
	}
	w, err := k.reconnect(e, r, handed)
	if err != nil {
		_ = held.file.Close()
		return err
	}
	k.own(r.Pid, true)
	k.attend(e, held, w)
	return nil
}

// Handover prepares for replacing the program in this process by another one (execve),
// and returns the descriptors that stay open over it: for each running container those
// of its output, so that output which was written but not read yet isn't lost even if
// the container ends meanwhile, and that of its standard input if it is open. It may be
// called only after Run has returned. The new program passes them to [Supervisor.TakeOver].
func (k *Supervisor) Handover() map[string][]int {
	out := map[string][]int{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, e := range k.containers {
		e.mu.Lock()
		for _, f := range (&wires{streams: e.streams, stdin: e.stdin}).files() {
			rc, err := f.SyscallConn()
			if err != nil {
				continue
			}
			_ = rc.Control(func(fd uintptr) {
				if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err == nil {
					out[id] = append(out[id], int(fd))
				}
			})
		}
		e.mu.Unlock()
	}
	return out
}

// TakeOver passes in the descriptors that [Supervisor.Handover] returned. It must be
// called before Run.
func (k *Supervisor) TakeOver(fifos map[string][]int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fifos = maps.Clone(fifos)
}

// reapStrangers waits for processes that became our children because their parents
// died: orphans of containers in the host's process namespace, and what an
// earlier program in this process started and didn't wait for.
func (k *Supervisor) reapStrangers(ctx context.Context) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	for {
		select {
		case <-ctx.Done():
			return
		case <-died:
		}
		// Children of libcontainer and of exec are waited for by these. While one is being
		// started it can't be distinguished; when it ends there is another SIGCHLD.
		if !k.spawn.TryLock() {
			continue
		}
		for _, pid := range children() {
			k.mu.Lock()
			owned := k.owned[pid]
			k.mu.Unlock()
			if !owned {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
		k.spawn.Unlock()
	}
}

// Spawning runs f, which may start processes and wait for them: while it runs, the
// supervisor does not reap children that are not containers.
func (k *Supervisor) Spawning(f func() error) error {
	k.spawn.RLock()
	defer k.spawn.RUnlock()
	return f()
}

// children lists the processes whose parent this one is.
func children() []int {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	var pids []int
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}
