//go:build !linux || portable

package inprocess

import "syscall"

// socketPair returns two connected sockets that programs that this one starts do not inherit.
func socketPair() ([2]int, error) {
	syscall.ForkLock.RLock() // no program is started before the flags are set
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return fds, err
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
		if err := syscall.SetNonblock(fd, true); err != nil {
			_, _ = syscall.Close(fds[0]), syscall.Close(fds[1])
			return fds, err
		}
	}
	return fds, nil
}
