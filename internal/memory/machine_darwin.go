package memory

import "golang.org/x/sys/unix"

// Machine returns how many bytes of memory the machine has; 0 if that is not known.
func Machine() uint64 {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return size
}
