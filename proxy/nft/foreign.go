package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Names of tables and chains of kube-proxy.
const (
	foreignTable = "kube-proxy"
	foreignChain = "KUBE-SERVICES"
	foreignLink  = "kube-ipvs0"
)

var familyNames = map[byte]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}

// Foreign returns descriptions of kube-proxy's rules in the network namespace of the thread that
// calls it: two proxies on a node interfere with each other. It changes nothing. With an error the
// result may be incomplete.
func Foreign() (found []string, err error) {
	tables, err := dump(unix.NFT_MSG_GETTABLE, unix.NFPROTO_UNSPEC)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.table == foreignTable {
			found = append(found, fmt.Sprintf("kube-proxy in nftables mode: table %s %s", familyNames[t.family], t.table))
		}
	}
	chains, err := dump(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC)
	if err != nil {
		return found, err
	}
	for _, c := range chains {
		if c.name == foreignChain && c.table == "nat" {
			found = append(found, fmt.Sprintf("kube-proxy in iptables mode: chain %s of table %s nat (iptables-nft)", c.name, familyNames[c.family]))
		}
	}
	for _, v6 := range []bool{false, true} {
		there, e := legacyChain("nat", foreignChain, v6)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("reading the rules of iptables-legacy: %w", e))
		}
		if there {
			name := map[bool]string{false: "iptables-legacy", true: "ip6tables-legacy"}[v6]
			found = append(found, fmt.Sprintf("kube-proxy in iptables mode: chain %s of table nat (%s)", foreignChain, name))
		}
	}
	_, e := netlink.LinkByName(foreignLink)
	if e == nil {
		found = append(found, fmt.Sprintf("kube-proxy in ipvs mode: interface %s", foreignLink))
	} else if _, none := errors.AsType[netlink.LinkNotFoundError](e); !none {
		err = errors.Join(err, fmt.Errorf("looking for interface %s: %w", foreignLink, e))
	}
	return found, err
}

// The legacy packet filter (iptables) is read by socket options. They have the same numbers for
// IPv4 and IPv6.
const (
	legacyGetInfo    = 64 // IPT_SO_GET_INFO
	legacyGetEntries = 65 // IPT_SO_GET_ENTRIES
	legacyNameLen    = 32 // of a table's name
)

// legacyInfo is struct ipt_getinfo, and struct ip6t_getinfo.
type legacyInfo struct {
	name       [legacyNameLen]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	numEntries uint32
	size       uint32
}

// legacyChain reports whether a table has a chain. Reading does not create a table that does not
// exist.
func legacyChain(table, chain string, v6 bool) (bool, error) {
	names, level, domain := "/proc/thread-self/net/ip_tables_names", unix.SOL_IP, unix.AF_INET
	if v6 {
		names, level, domain = "/proc/thread-self/net/ip6_tables_names", unix.SOL_IPV6, unix.AF_INET6
	}
	b, err := os.ReadFile(names)
	if errors.Is(err, os.ErrNotExist) || err == nil && !slices.Contains(strings.Fields(string(b)), table) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for {
		var info legacyInfo
		copy(info.name[:], table)
		if err := getsockopt(fd, level, legacyGetInfo, unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))); err != nil {
			return false, err
		}
		// struct ipt_get_entries: the name, the size, and the entries, aligned for their 64-bit
		// counters.
		const sizeAt, entriesAt = legacyNameLen, (legacyNameLen + 4 + 7) / 8 * 8
		entries := make([]byte, entriesAt+int(info.size))
		copy(entries, table)
		binary.NativeEndian.PutUint32(entries[sizeAt:], info.size)
		err := getsockopt(fd, level, legacyGetEntries, entries)
		if errors.Is(err, unix.EAGAIN) {
			continue // it changed in between
		}
		// A chain begins with an entry that has its name, and ends with a 0.
		return bytes.Contains(entries[entriesAt:], append([]byte(chain), 0)), err
	}
}

func getsockopt(fd, level, option int, buf []byte) error {
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt", errno)
	}
	return nil
}

// SeesBridged reports whether rules of the network layer see packets between ports of one bridge,
// so that pods of a node reach each other through Services. That needs the kernel module
// br_netfilter.
func SeesBridged() bool {
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	return err == nil
}
