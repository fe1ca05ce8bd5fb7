package container

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The namespaces of a pod are held by open descriptors, of this process and of the store, and not by mounts: each mount is copied for
// each container that starts, and listed for each reader of the mount table. The pins are then links to the descriptors in /proc of this
// process. Without a store they are bind mounts, which outlive the process by themselves; so they are for pods of earlier versions.

// heldName returns the name in the store of a pod's namespaces; ids of containers have no slash.
func heldName(pod string) string { return "pods/" + pod }

const heldPrefix = "pods/"

// Pin makes new namespaces for a pod, as [Pin] does, and holds them until [Supervisor.Unpin].
func (k *Supervisor) Pin(pod, dir string, spec PinSpec) (Pins, error) {
	if k.store == nil {
		return Pin(dir, spec)
	}
	var files []*os.File
	pins, err := pinBy(dir, spec, func(ns, path string) error {
		f, err := os.Open(ns)
		if err != nil {
			return err
		}
		files = append(files, f)
		return point(f, path)
	})
	if err != nil {
		closeFiles(files)
		return pins, err
	}
	if err := k.store.put(heldName(pod), files); err != nil {
		k.opts.Log.Warn("namespaces of a pod are held by mounts: the process that keeps descriptors takes no more", "pod", pod, "err", err)
		defer closeFiles(files)
		k.store.drop(heldName(pod))
		return pins, errors.Join(repin(pins.paths(), files, func(f *os.File, path string) error {
			return pinOne(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), path)
		}))
	}
	k.hold(pod, files)
	return pins, nil
}

// Unpin gives up the namespaces of a pod; see the function [Unpin].
func (k *Supervisor) Unpin(pod string, pins Pins) error {
	if k != nil {
		k.store.drop(heldName(pod))
		closeFiles(k.hold(pod, nil))
	}
	return Unpin(pins)
}

// Repin holds the namespaces of a pod that an earlier process held, which must be called after [Supervisor.Ready]. If no descriptors of them
// were kept it takes them from a running container of the pod. It returns an error if the namespaces are lost.
func (k *Supervisor) Repin(pod string, pins Pins) error {
	paths := pins.paths()
	if len(paths) == 0 || !isLink(paths[0]) {
		return nil // mounts, or none
	}
	k.mu.Lock()
	files := k.held[pod]
	k.mu.Unlock()
	if len(files) == len(paths) {
		return repin(paths, files, point)
	}
	files, err := k.namespacesOf(pod, pins)
	if err == nil {
		err = repin(paths, files, point)
	}
	if err != nil {
		closeFiles(files)
		for _, path := range paths { // what they lead to is not the pod's
			_ = os.Remove(path)
		}
		return err
	}
	closeFiles(k.hold(pod, files))
	if err := k.store.put(heldName(pod), files); err != nil {
		k.opts.Log.Warn("namespaces of a pod will be lost if this process is killed", "pod", pod, "err", err)
	}
	return nil
}

// namespacesOf opens the namespaces of a pod in a running container of it. The caller closes the files, even if there is an error.
func (k *Supervisor) namespacesOf(pod string, pins Pins) (files []*os.File, err error) {
	for _, r := range k.List() {
		if r.Pod != pod || r.State() != Running {
			continue
		}
		for _, name := range pins.names() {
			f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", r.Pid, name))
			if err != nil {
				return files, err
			}
			files = append(files, f)
		}
		held, err := holdProcess(r.Pid, r.PidStart)
		if err != nil { // another process has its number
			return files, err
		}
		return files, held.file.Close()
	}
	return nil, errors.New("no process has kept them")
}

// hold replaces the files of a pod, and returns the ones before.
func (k *Supervisor) hold(pod string, files []*os.File) (before []*os.File) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before = k.held[pod]
	if files == nil {
		delete(k.held, pod)
	} else {
		k.held[pod] = files
	}
	return before
}

// takeHeld takes the namespaces of pods out of what the store has kept.
func (k *Supervisor) takeHeld(kept map[string][]int) {
	for name, fds := range kept {
		pod, is := strings.CutPrefix(name, heldPrefix)
		if !is {
			continue
		}
		delete(kept, name)
		files := make([]*os.File, len(fds))
		for i, fd := range fds {
			files[i] = os.NewFile(uintptr(fd), name)
		}
		k.hold(pod, files)
		k.store.adopt(name, files)
	}
}

// ForgetPods gives up namespaces of pods that an earlier process held and that are not among the given ones: it was killed while it made or
// removed them.
func (k *Supervisor) ForgetPods(known func(pod string) bool) {
	k.mu.Lock()
	var gone []string
	for pod := range k.held {
		if !known(pod) {
			gone = append(gone, pod)
		}
	}
	k.mu.Unlock()
	for _, pod := range gone {
		k.store.drop(heldName(pod))
		closeFiles(k.hold(pod, nil))
	}
}

// point makes a link at path to an open file of this process.
func point(f *os.File, path string) error {
	return os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), path)
}

// repin replaces links at paths.
func repin(paths []string, files []*os.File, pin func(f *os.File, path string) error) error {
	for i, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := pin(files[i], path); err != nil {
			return err
		}
	}
	return nil
}

// isLink reports whether a pin is a link, or has been lost.
func isLink(path string) bool {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK
}
