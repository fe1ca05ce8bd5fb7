package memory

import "golang.org/x/sys/unix"

// Machine returns how many bytes of memory the machine has; 0 if that is not known.
func Machine() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}
