package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reasons why a container is no longer running, as Kubernetes words them.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonOOMKilled  = "OOMKilled"
	ReasonStartError = "StartError"
	ReasonUnknown    = "Unknown" // the container ended while no runtime was running
)

// UnknownCode replaces an exit code that is not known (K2).
const UnknownCode = 255

// Exit is how a container ended.
type Exit struct {
	Code     int // as a shell has it: 128 + number for a signal
	Reason   string
	Message  string
	Finished time.Time // for an unknown exit: when it was noticed
}

// processStart returns when the process began, in clock ticks since boot. Together
// with the pid it names one process for ever.
func processStart(pid int) (uint64, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The second field, the name, may hold blanks and brackets.
	text := string(stat)
	rest := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const field = 22 - 3 // starttime is field 22; rest begins with field 3
	if len(rest) <= field {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return strconv.ParseUint(rest[field], 10, 64)
}

// handles reports whether the process has a handler for sig, or blocks or ignores
// it. It is false if the process is gone.
func handles(pid int, sig unix.Signal) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "SigBlk", "SigIgn", "SigCgt":
			mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err == nil && mask&(1<<(uint(sig)-1)) != 0 {
				return true
			}
		}
	}
	return false
}

// A process is one process, held by descriptor so that its number can't be
// mistaken for a later one's.
type process struct {
	pid  int
	file *os.File // a pidfd
}

var errGone = errors.New("the process is gone")

// holdProcess returns the process with this number and start time, or errGone.
// A zombie that has not been waited for is not gone.
func holdProcess(pid int, start uint64) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, errGone
	case err != nil:
		return nil, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	p := &process{pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}
	// Asked after the descriptor was opened: if the start time is right now, the
	// descriptor is that of the process we mean.
	if now, err := processStart(pid); err != nil || now != start {
		_ = p.file.Close()
		return nil, errGone
	}
	return p, nil
}

// holdEnded returns the process of a pidfd that was kept since before its end. Linux keeps its exit code as long as the
// pidfd is open, from 6.15 on.
func holdEnded(pid, pidfd int) (*process, error) {
	fd, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &process{pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// signal sends sig. A process that has ended is no error.
func (p *process) signal(sig unix.Signal) error {
	var sent error
	err := p.control(func(fd int) { sent = unix.PidfdSendSignal(fd, sig, nil, 0) })
	if err != nil || errors.Is(sent, unix.ESRCH) {
		return nil // closed: it has ended and was waited for
	}
	return sent
}

func (p *process) control(f func(fd int)) error {
	rc, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Control(func(fd uintptr) { f(int(fd)) })
}

// wait blocks until the process ends and returns its exit code. known is false if
// the process is not our child and the kernel doesn't report the code; the end itself is
// certain. It takes no thread while it waits. An error means that ctx was cancelled.
func (p *process) wait(ctx context.Context) (code int, known bool, err error) {
	rc, err := p.file.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var status waitStatus
	if err := rc.Read(func(fd uintptr) bool { status = look(int(fd)); return status.over || status.dead }); err != nil {
		return 0, false, err
	}
	if !status.over {
		// Dead, and its parent hasn't waited for it yet. The kernel shows the exit code to
		// other processes only after that. A parent that doesn't wait within a few seconds
		// won't: the process is certainly dead, so go on without its code.
		const patience = 5 * time.Second
		_ = p.file.SetReadDeadline(time.Now().Add(patience))
		_ = rc.Read(func(fd uintptr) bool { status = look(int(fd)); return status.over })
	}
	return status.code, status.known, nil
}

type waitStatus struct {
	over  bool // the exit code can be had, or never will be
	dead  bool
	known bool
	code  int
}

// look returns the state of the process of a pidfd, without blocking.
func look(fd int) waitStatus {
	var info siginfo
	err := unix.Waitid(unix.P_PIDFD, fd, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG, nil)
	switch {
	case err == nil && info.pid != 0:
		return waitStatus{over: true, dead: true, known: true, code: info.code()}
	case err == nil, errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return waitStatus{}
	}
	// Not our child: a runtime before us started it.
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 0); err != nil || n == 0 {
		return waitStatus{}
	}
	code, known, able := pidfdExit(fd)
	return waitStatus{dead: true, over: known || !able, known: known, code: code}
}

// siginfo is what waitid fills in (siginfo_t for SIGCHLD on 64-bit machines).
type siginfo struct {
	signo, errno, how int32
	_                 int32
	pid, uid, status  int32
	_                 [128 - 28]byte
}

func (s *siginfo) code() int {
	const exited = 1 // CLD_EXITED; the others mean a signal
	if s.how == exited {
		return int(s.status)
	}
	return 128 + int(s.status)
}

// pidfdExit returns the exit code of a process that isn't our child, which Linux reports
// from 6.15 on once the parent has waited for it. able is false if this kernel does not
// support it.
func pidfdExit(fd int) (code int, known, able bool) {
	type pidfdInfo struct { // struct pidfd_info of linux/pidfd.h, first version
		mask, cgroup uint64
		ids          [11]uint32
		exitCode     int32
	}
	const (
		getInfo  = 0xC040FF0B // _IOWR(0xFF, 11, 64 bytes)
		infoExit = 1 << 3     // PIDFD_INFO_EXIT
	)
	info := pidfdInfo{mask: infoExit}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getInfo, uintptr(unsafe.Pointer(&info)))
	switch {
	case errno == unix.ESRCH:
		return 0, false, false // reaped before we held it
	case errno != 0:
		return 0, false, false
	case info.mask&infoExit == 0:
		return 0, false, !probedNoExit(fd)
	}
	status := unix.WaitStatus(info.exitCode)
	if status.Signaled() {
		return 128 + int(status.Signal()), true, true
	}
	return status.ExitStatus(), true, true
}

// probedNoExit reports whether the process has been reaped (POLLHUP) and the
// kernel nevertheless has no exit code: one before 6.15.
func probedNoExit(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, err := unix.Poll(poll, 0)
	return err != nil || poll[0].Revents&unix.POLLHUP != 0
}
