package nft

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

// addLegacyChain gives the nat table of the older packet filter a chain. It reports whether
// the kernel has that filter.
func addLegacyChain(t *testing.T, chain string) bool {
	t.Helper()
	const (
		setReplace                         = 64 // IPT_SO_SET_REPLACE
		entryLen, targetAt, targetHeader   = 112, 88, 32
		accept, back                       = -2, -5 // -NF_ACCEPT - 1, XT_RETURN
		prerouting, input, output, leaving = 0, 1, 3, 4
	)
	var entries []byte
	entry := func(target string, data []byte) {
		e := make([]byte, entryLen+targetHeader+len(data))
		binary.NativeEndian.PutUint16(e[targetAt:], entryLen)
		binary.NativeEndian.PutUint16(e[targetAt+2:], uint16(len(e)))
		binary.NativeEndian.PutUint16(e[entryLen:], uint16(targetHeader+len(data)))
		copy(e[entryLen+2:], target)
		copy(e[entryLen+targetHeader:], data)
		entries = append(entries, e...)
	}
	verdict := func(v int32) { entry("", append(binary.NativeEndian.AppendUint32(nil, uint32(v)), 0, 0, 0, 0)) }
	name := func(s string) { entry("ERROR", append([]byte(s), make([]byte, 32-len(s))...)) }
	hooks := []int{prerouting, input, output, leaving}
	var at [5]uint32
	for _, h := range hooks {
		at[h] = uint32(len(entries))
		verdict(accept)
	}
	name(chain)
	verdict(back)
	name("ERROR")

	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	info := legacyInfo{}
	copy(info.name[:], "nat")
	err = getsockopt(fd, unix.SOL_IP, legacyGetInfo, unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)))
	if errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.ENOENT) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	replace := struct {
		name                 [legacyNameLen]byte
		hooks, entries, size uint32
		at, underflow        [5]uint32
		oldEntries           uint32
		oldCounters          *[16]byte
	}{
		name: info.name, hooks: info.validHooks, entries: uint32(len(hooks) + 3), size: uint32(len(entries)),
		at: at, underflow: at, oldEntries: info.numEntries, oldCounters: &make([][16]byte, info.numEntries)[0],
	}
	head := unsafe.Slice((*byte)(unsafe.Pointer(&replace)), unsafe.Sizeof(replace))
	if err := unix.SetsockoptString(fd, unix.SOL_IP, setReplace, string(head)+string(entries)); err != nil {
		t.Fatalf("adding a chain: %v", err)
	}
	runtime.KeepAlive(replace.oldCounters) // the kernel has written there
	return true
}

func TestALegacyForeignProxyIsFound(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		runtime.LockOSThread()
		if !addLegacyChain(t, "SOMETHING-ELSE") {
			t.Skip("this kernel has no iptables-legacy")
		}
		if found, err := Foreign(); len(found) > 0 || err != nil {
			t.Errorf("%q, %v, want nothing", found, err)
		}
		addLegacyChain(t, foreignChain)
		found, err := Foreign()
		if want := []string{"kube-proxy in iptables mode: chain KUBE-SERVICES of table nat (iptables-legacy)"}; !slices.Equal(found, want) || err != nil {
			t.Errorf("%q, %v, want %q", found, err, want)
		}
	})
}
