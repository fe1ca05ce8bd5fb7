package container

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// An fdStore keeps descriptors open when this process is killed: the namespaces of each pod, and of each running container its pidfd,
// which has its exit code, its output, its terminal, and its standard input. They are sent to a socket and never received; a process
// of its own, which does nothing (see [PauseProgram]), has both ends of the socket open. The next supervisor takes
// the ends out of that process, and the descriptors out of the socket.
//
// A message is the name of a container or of a pod's namespaces, and its descriptors. The newest of a name counts. A message cannot be removed
// from the middle of the queue, so the ones that count are sent once more from time to time, and the older ones received:
// in this order, so that a kill in the middle loses nothing.
//
// All methods may be called on nil, which is a store that keeps nothing.
type fdStore struct {
	mu       sync.Mutex
	to, from int                   // guarded by mu; the ends of the socket
	kept     map[string][]*os.File // guarded by mu; what should be in the queue; the owners close the files after drop
	queued   int                   // guarded by mu; number of messages
}

// storeRecord is written to storeFile.
type storeRecord struct {
	Pid   int
	Start uint64
}

const (
	storeFile    = "fdstore.json"
	storeFrom    = 3 // descriptors in the process of the store
	storeTo      = 4
	storeSlack   = 64       // messages more than needed before old ones are removed
	storeBuffer  = 16 << 20 // bytes; a message takes about one KiB
	storeProgram = "sampan-runtime-fdstore"
)

// openStore finds the store of an earlier supervisor with the state directory dir, and what is in it, or starts an
// empty one. spawning is called for what starts a process.
func openStore(dir string, spawning func(func() error) error) (*fdStore, map[string][]int, error) {
	s := &fdStore{kept: map[string][]*os.File{}, to: -1, from: -1}
	found, err := s.find(dir)
	if err == nil {
		return s, found, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errGone) {
		return nil, nil, err
	}
	if err := spawning(func() error { return s.start(dir) }); err != nil {
		s.close()
		return nil, nil, err
	}
	return s, nil, nil
}

// find takes over the store of an earlier supervisor.
func (s *fdStore) find(dir string) (map[string][]int, error) {
	held, err := holdStore(dir)
	if err != nil {
		return nil, err
	}
	defer held.file.Close()
	var errTo error
	err = held.control(func(fd int) {
		if s.from, err = unix.PidfdGetfd(fd, storeFrom, 0); err == nil {
			s.to, errTo = unix.PidfdGetfd(fd, storeTo, 0)
		}
	})
	if err := errors.Join(err, errTo); err != nil {
		return nil, fmt.Errorf("taking descriptors of process %d: %w", held.pid, err)
	}
	return s.contents()
}

// contents returns what is in the queue, and leaves it there: each message is sent again.
func (s *fdStore) contents() (map[string][]int, error) {
	found := map[string][]int{}
	end := rand.Text()
	if err := s.send(end, nil); err != nil {
		return nil, err
	}
	for {
		name, fds, err := receive(s.from)
		if err != nil {
			return found, err
		}
		if name == end {
			return found, nil
		}
		if len(fds) == 0 {
			continue // the end that an earlier one was looking for
		}
		if err := s.send(name, fds); err != nil {
			return found, err
		}
		s.queued++
		closeAll(found[name])
		found[name] = fds
	}
}

// holdStore returns the process of the store, or fs.ErrNotExist or errGone.
func holdStore(dir string) (*process, error) {
	data, err := os.ReadFile(filepath.Join(dir, storeFile))
	if err != nil {
		return nil, err
	}
	var r storeRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", storeFile, err)
	}
	return holdProcess(r.Pid, r.Start)
}

// start starts the process.
func (s *fdStore) start(dir string) error {
	program, err := PauseProgram()
	if err != nil {
		return err
	}
	file, err := executable(program)
	if err != nil {
		return err
	}
	defer file.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	s.from, s.to = fds[0], fds[1]
	_ = unix.SetsockoptInt(s.to, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, storeBuffer) // otherwise there is room for fewer
	var ends []*os.File
	for _, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		f := os.NewFile(uintptr(own), "fdstore")
		defer f.Close()
		ends = append(ends, f)
	}
	cmd := exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()))
	cmd.Args, cmd.Env, cmd.Dir = []string{storeProgram}, []string{}, "/"
	cmd.ExtraFiles = ends // storeFrom, storeTo
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	start, err := processStart(cmd.Process.Pid)
	if err == nil {
		err = save(filepath.Join(dir, storeFile), &storeRecord{Pid: cmd.Process.Pid, Start: start})
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
		return err
	}
	return cmd.Process.Release() // the supervisor reaps it
}

// executable returns a file without a name that can be executed, even if every writable file system is mounted
// noexec. It must not be open for writing then.
func executable(program []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(storeProgram, unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(storeProgram, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), storeProgram)
	defer file.Close()
	if _, err := file.Write(program); err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// EndStore ends the process that keeps the descriptors of a supervisor with the state directory dir, if there is one.
func EndStore(dir string) error {
	held, err := holdStore(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer held.file.Close()
	if err := held.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("ending process %d: %w", held.pid, err)
	}
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, _, err := held.wait(ctx); err != nil {
		return fmt.Errorf("process %d survives SIGKILL: %w", held.pid, err)
	}
	return nil
}

// put keeps files under a new name. Their owner must not close them before drop.
func (s *fdStore) put(name string, files []*os.File) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[name] = files
	return s.sendFiles(name, files)
}

// adopt counts files as kept that an earlier supervisor has put under a name.
func (s *fdStore) adopt(name string, files []*os.File) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[name] = files
}

// replace keeps other files under a name; those before are closed in the store when it returns. It does nothing if
// the name was dropped.
func (s *fdStore) replace(name string, files []*os.File) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.kept[name]; !ok {
		return nil
	}
	s.kept[name] = files
	return s.compact()
}

// trim removes messages that do not count, if there are many.
func (s *fdStore) trim() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued > 2*len(s.kept)+storeSlack {
		_ = s.compact() // what cannot be sent is not kept; put has reported that the queue is full
	}
}

// drop gives up the files of a name. They may stay open in the store for some time.
func (s *fdStore) drop(name string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	delete(s.kept, name)
	s.mu.Unlock()
	s.trim()
}

// compact removes all messages that do not count. The caller holds mu.
func (s *fdStore) compact() error {
	old := s.queued
	var errs []error
	for name, files := range s.kept {
		errs = append(errs, s.sendFiles(name, files))
	}
	for range old {
		_, fds, err := receive(s.from)
		if err != nil {
			break
		}
		closeAll(fds)
		s.queued--
	}
	return errors.Join(errs...)
}

// sendFiles adds a message to the queue. The caller holds mu.
func (s *fdStore) sendFiles(name string, files []*os.File) error {
	var sent error
	if err := withDescriptors(files, nil, func(fds []int) { sent = s.send(name, fds) }); err != nil {
		return err
	}
	if sent == nil {
		s.queued++
	}
	return sent
}

func (s *fdStore) send(name string, fds []int) error {
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	return os.NewSyscallError("sendmsg", unix.Sendmsg(s.to, []byte(name), control, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL))
}

// close gives up our ends; the store goes on.
func (s *fdStore) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll([]int{s.to, s.from})
	s.to, s.from = -1, -1
}

// withDescriptors calls f with the descriptors of files, which are not closed meanwhile.
func withDescriptors(files []*os.File, fds []int, f func(fds []int)) error {
	if len(files) == 0 {
		f(fds)
		return nil
	}
	rc, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = rc.Control(func(fd uintptr) { inner = withDescriptors(files[1:], append(fds, int(fd)), f) })
	return errors.Join(err, inner)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// dupAll returns copies of descriptors; the first that cannot be copied ends the list.
func dupAll(fds []int) []int {
	var out []int
	for _, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		out = append(out, own)
	}
	return out
}
