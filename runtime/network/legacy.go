package network

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The older of the two packet filters of Linux (iptables legacy) is read by options of a
// socket. Only the policy for forwarded packets is read.
const (
	iptGetInfo    = 64 // IPT_SO_GET_INFO
	iptGetEntries = 65 // IPT_SO_GET_ENTRIES

	iptNameLen   = 32 // of a table's name
	hookForward  = 2  // NF_INET_FORWARD
	verdictDrop  = -1 // -NF_DROP - 1
	targetHeader = 32 // of struct xt_entry_target; a verdict follows it
)

// A legacy is what differs between the filters of the two IP families.
type legacy struct {
	names       string // the file with the names of tables
	domain      int
	level       int // of the options
	entryTarget int // where in struct ipt_entry or ip6t_entry the place of its target stands, as 16 bits
	entryLen    int
}

func legacyOf(f *family) legacy {
	if f.is6() {
		return legacy{"/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6, 140, 168}
	}
	return legacy{"/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.SOL_IP, 88, 112}
}

// iptInfo is struct ipt_getinfo.
type iptInfo struct {
	name       [iptNameLen]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32 // where the policy of each hook's chain stands
	numEntries uint32
	size       uint32
}

var errNotUnderstood = errors.New("the kernel's answer is not understood")

// forwardDrops reports whether the filter table of the legacy iptables drops
// forwarded packets by default. A table that isn't there is not made by asking.
func (l legacy) forwardDrops() (bool, error) {
	names, err := os.ReadFile(l.names)
	if errors.Is(err, os.ErrNotExist) || err == nil && !slices.Contains(strings.Fields(string(names)), "filter") {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fd, err := unix.Socket(l.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // any will do, and a raw one needs CAP_NET_RAW
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)

	var info iptInfo
	copy(info.name[:], "filter")
	if err := l.getsockopt(fd, iptGetInfo, unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))); err != nil {
		return false, err
	}
	if info.validHooks&(1<<hookForward) == 0 {
		return false, nil
	}
	// struct ipt_get_entries: the name, the size, and the entries, which are aligned
	// as their 64-bit counters want it.
	const sizeAt, entriesAt = iptNameLen, (iptNameLen + 4 + 7) / 8 * 8
	buf := make([]byte, entriesAt+int(info.size))
	copy(buf, "filter")
	binary.NativeEndian.PutUint32(buf[sizeAt:], info.size)
	if err := l.getsockopt(fd, iptGetEntries, buf); err != nil {
		return false, err
	}
	return l.policyDrops(buf[entriesAt:], info.underflow[hookForward])
}

// policyDrops reads the verdict of the entry at a place in a table.
func (l legacy) policyDrops(entries []byte, at uint32) (bool, error) {
	if uint64(at)+uint64(l.entryLen) > uint64(len(entries)) {
		return false, errNotUnderstood
	}
	entry := entries[at:]
	verdict := int(binary.NativeEndian.Uint16(entry[l.entryTarget:])) + targetHeader
	if verdict < l.entryLen+targetHeader || verdict+4 > len(entry) {
		return false, errNotUnderstood
	}
	return int32(binary.NativeEndian.Uint32(entry[verdict:])) == verdictDrop, nil
}

func (l legacy) getsockopt(fd, option int, buf []byte) error {
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(l.level), uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt", errno)
	}
	return nil
}
