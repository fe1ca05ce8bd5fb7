package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pins are the namespaces of a pod, at paths below one directory: bind mounts, which keep them alive, or links to descriptors of the
// process that has a [Supervisor].
// An empty path means that the pod shares that namespace with the host.
type Pins struct {
	Net, IPC, UTS string
	User          string `json:",omitempty"` // "" means the users of the host; the namespaces above belong to it
	PID           string `json:",omitempty"` // unlike the others it ends with its process 1; see [PinPID]
}

// A PinSpec lists the namespaces of a pod.
type PinSpec struct {
	Net, IPC, UTS bool
	Hostname      string            // set in the UTS namespace
	Sysctls       map[string]string // net.* needs Net, the others IPC

	// Users are those of a new user namespace, to which the other new ones belong; nil means those of the host.
	Users *IDMap

	// Inside is called on a thread that is in the new namespaces, with their
	// files made; nil means nothing is to be done there.
	Inside func() error
}

// Check reports sysctls that don't belong to the namespaces of s, which would
// change the host.
func (s *PinSpec) Check() error {
	var errs []error
	for name := range s.Sysctls {
		dotted := strings.ReplaceAll(name, "/", ".")
		ipc := slices.ContainsFunc([]string{"kernel.shm", "kernel.msg", "fs.mqueue."}, func(p string) bool { return strings.HasPrefix(dotted, p) }) ||
			dotted == "kernel.sem"
		switch {
		case strings.Contains(name, ".."):
			errs = append(errs, fmt.Errorf("sysctl %q is not a name", name))
		case strings.HasPrefix(dotted, "net."):
			if !s.Net {
				errs = append(errs, fmt.Errorf("sysctl %q needs the pod to have a network of its own", name))
			}
		case ipc:
			if !s.IPC {
				errs = append(errs, fmt.Errorf("sysctl %q needs the pod to have an IPC namespace of its own", name))
			}
		default:
			errs = append(errs, fmt.Errorf("sysctl %q belongs to the whole host, not to a pod", name))
		}
	}
	return errors.Join(errs...)
}

// PinsOf returns where [Pin] pins the namespaces of a pod below dir.
func PinsOf(dir string, spec PinSpec) Pins {
	path := func(wanted bool, name string) string {
		if !wanted {
			return ""
		}
		return filepath.Join(dir, name)
	}
	return Pins{
		Net: path(spec.Net, "net"), IPC: path(spec.IPC, "ipc"), UTS: path(spec.UTS, "uts"), User: path(spec.Users != nil, "user"),
	}
}

// A namespace is one that [Pin] makes: its flag of unshare(2), its name in /proc/PID/ns, and the path of its pin.
type namespace struct {
	flag       int
	name, path string
}

// made returns the namespaces of a pod that Pin makes, beside that of users.
func (p *Pins) made() []namespace {
	all := []namespace{{unix.CLONE_NEWNET, "net", p.Net}, {unix.CLONE_NEWIPC, "ipc", p.IPC}, {unix.CLONE_NEWUTS, "uts", p.UTS}}
	return slices.DeleteFunc(all, func(n namespace) bool { return n.path == "" })
}

// names returns the names of the namespaces in /proc/PID/ns, without that of PIDs.
func (p *Pins) names() (list []string) {
	if p.User != "" {
		list = append(list, "user")
	}
	for _, n := range p.made() {
		list = append(list, n.name)
	}
	return list
}

// paths returns the paths of the namespaces in the order of names.
func (p *Pins) paths() (list []string) {
	if p.User != "" {
		list = append(list, p.User)
	}
	for _, n := range p.made() {
		list = append(list, n.path)
	}
	return list
}

// pin has each of the namespaces in a directory of /proc pinned at its path.
func (p *Pins) pin(from string, one func(ns, path string) error) error {
	paths := p.paths()
	for i, name := range p.names() {
		if err := one(from+name, paths[i]); err != nil {
			return err
		}
	}
	return nil
}

// prepare sets what s has for the namespaces of this thread.
func (s *PinSpec) prepare() error {
	if s.UTS && s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("hostname %q: %w", s.Hostname, err)
		}
	}
	for name, value := range s.Sysctls {
		file := "/proc/sys/" + strings.ReplaceAll(strings.ReplaceAll(name, "/", "."), ".", "/")
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("sysctl %s=%s: %w", name, value, err)
		}
	}
	if s.Inside != nil {
		return s.Inside()
	}
	return nil
}

// Pin makes new namespaces and pins them below dir, by bind mounts. It leaves nothing behind if it
// fails. No process is needed: a thread of this one goes in, and comes back.
func Pin(dir string, spec PinSpec) (Pins, error) { return pinBy(dir, spec, pinOne) }

// pinBy is Pin, and has the namespaces pinned by a function.
func pinBy(dir string, spec PinSpec, one func(ns, path string) error) (Pins, error) {
	if err := spec.Check(); err != nil {
		return Pins{}, err
	}
	pins := PinsOf(dir, spec)
	flags := 0
	var names []string
	for _, n := range pins.made() {
		flags |= n.flag
		names = append(names, n.name)
	}
	if flags == 0 {
		return Pins{}, nil
	}
	runtime.LockOSThread()
	back := true // false: the thread must die with this goroutine
	defer func() {
		if back {
			runtime.UnlockOSThread()
		}
	}()
	home, err := openNamespaces("/proc/thread-self/ns/", names)
	defer closeFiles(home)
	if err != nil {
		return Pins{}, err
	}
	from := "/proc/thread-self/ns/"
	if spec.Users != nil {
		pid, end, err := newNamespaces(flags, *spec.Users)
		if err != nil {
			return Pins{}, err
		}
		defer end()
		from = "/proc/" + strconv.Itoa(pid) + "/ns/"
		if err := join(from, names); err != nil {
			back = leave(home)
			return Pins{}, err
		}
	} else if err := unix.Unshare(flags); err != nil {
		return Pins{}, fmt.Errorf("new namespaces: %w", err)
	}
	err = pins.pin(from, one)
	if err == nil {
		err = spec.prepare()
	}
	back = leave(home)
	if err != nil {
		return Pins{}, errors.Join(err, Unpin(pins))
	}
	return pins, nil
}

// openNamespaces opens the namespaces in a directory of /proc. The caller closes the files, even if there is an error.
func openNamespaces(dir string, names []string) (files []*os.File, err error) {
	for _, name := range names {
		f, err := os.Open(dir + name)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// join moves this thread into namespaces of a process.
func join(dir string, names []string) error {
	files, err := openNamespaces(dir, names)
	defer closeFiles(files)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("entering %s: %w", f.Name(), err)
		}
	}
	return nil
}

// leave moves this thread back, and reports whether it could.
func leave(home []*os.File) bool {
	back := true
	for _, f := range home {
		back = unix.Setns(int(f.Fd()), 0) == nil && back
	}
	return back
}

// PinPID pins at path the PID namespace of a process that the caller keeps from
// being replaced by another of the same number: its own child.
func PinPID(pid int, path string) error {
	return pinOne("/proc/"+strconv.Itoa(pid)+"/ns/pid", path)
}

func pinOne(ns, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_ = f.Close()
	if err := unix.Mount(ns, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pinning %s at %s: %w", ns, path, err)
	}
	return nil
}

// Unpin removes pins; the namespaces end when the last process has left them. Pins
// that aren't there are no error.
func Unpin(pins Pins) error {
	var errs []error
	for _, path := range []string{pins.Net, pins.IPC, pins.UTS, pins.PID, pins.User} {
		if path == "" {
			continue
		}
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unpinning %s: %w", path, err))
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
