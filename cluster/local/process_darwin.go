package local

import (
	"os"

	"golang.org/x/sys/unix"
)

// look returns the process that has the pid, and whether it has ended or will do
// nothing else any more.
func look(pid int) (p Process, ended bool, err error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return Process{}, false, os.ErrProcessDone // the kernel has no other reason
	}
	const zombie = 5 // SZOMB in sys/proc.h
	began := info.Proc.P_starttime
	return Process{PID: pid, Start: uint64(began.Sec)*1_000_000 + uint64(began.Usec)}, info.Proc.P_stat == zombie, nil
}
