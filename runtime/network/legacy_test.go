package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

// setLegacyPolicy gives the filter table of the older packet filter a policy for what
// is forwarded, and nothing else. It reports whether the kernel has that filter.
func setLegacyPolicy(t *testing.T, l legacy, verdict int32) bool {
	t.Helper()
	entryLen, entryTarget := l.entryLen, l.entryTarget
	const (
		setReplace             = 64 // IPT_SO_SET_REPLACE
		input, forward, output = 1, 2, 3
		accept                 = -2
	)
	standardLen, errorLen := entryLen+targetHeader+8, entryLen+targetHeader+32
	var entries bytes.Buffer
	entry := func(targetLen int, name string, data []byte) {
		e := make([]byte, entryLen+targetLen)
		binary.NativeEndian.PutUint16(e[entryTarget:], uint16(entryLen))
		binary.NativeEndian.PutUint16(e[entryTarget+2:], uint16(len(e)))
		target := e[entryLen:]
		binary.NativeEndian.PutUint16(target, uint16(targetLen))
		copy(target[2:], name)
		copy(target[targetHeader:], data)
		entries.Write(e)
	}
	var at [5]uint32
	for hook, v := range []int32{input: accept, forward: verdict, output: accept} {
		if hook == 0 {
			continue
		}
		at[hook] = uint32(entries.Len())
		entry(standardLen-entryLen, "", binary.NativeEndian.AppendUint32(nil, uint32(v)))
	}
	entry(errorLen-entryLen, "ERROR", []byte("ERROR"))

	fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	info := iptInfo{}
	copy(info.name[:], "filter")
	err = l.getsockopt(fd, iptGetInfo, unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)))
	if errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.ENOENT) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	replace := struct {
		name                 [iptNameLen]byte
		hooks, entries, size uint32
		at, underflow        [5]uint32
		oldEntries           uint32
		oldCounters          *[16]byte
	}{
		name: info.name, hooks: 1<<input | 1<<forward | 1<<output, entries: 4, size: uint32(entries.Len()),
		at: at, underflow: at, oldEntries: info.numEntries, oldCounters: &make([][16]byte, info.numEntries)[0],
	}
	head := unsafe.Slice((*byte)(unsafe.Pointer(&replace)), unsafe.Sizeof(replace))
	if err := unix.SetsockoptString(fd, l.level, setReplace, string(head)+entries.String()); err != nil {
		t.Fatalf("setting the policy: %v", err)
	}
	runtime.KeepAlive(replace.oldCounters) // the kernel has written there
	return true
}

func TestALegacyForwardDropIsReported(t *testing.T) {
	nstest.NeedRoot(t)
	n := newNetwork(t, dual(t))
	t.Cleanup(func() { _ = n.Down() })
	const accept, drop = -2, -1
	limits := func() string {
		t.Helper()
		l, err := n.Up()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(l, "\n")
	}
	if got := limits(); got != "" {
		t.Errorf("nothing is wrong, and Up says %q", got)
	}
	for _, f := range n.families {
		program := "iptables"
		if f.is6() {
			program = "ip6tables"
		}
		l := legacyOf(f)
		if !setLegacyPolicy(t, l, drop) {
			continue // this kernel has the newer packet filter alone
		}
		for _, want := range []string{
			"legacy " + program + " drops forwarded packets", program + "-legacy -I FORWARD -i spn0 -j ACCEPT", program + "-legacy -I FORWARD -o spn0 -j ACCEPT",
		} {
			if got := limits(); !strings.Contains(got, want) {
				t.Errorf("Up says %q, want it to say %q", got, want)
			}
		}
		setLegacyPolicy(t, l, accept)
		if got := limits(); got != "" {
			t.Errorf("the policy is to accept, and Up says %q", got)
		}
	}
}

func TestLegacyIgnoresUnknownTables(t *testing.T) {
	for _, f := range newNetwork(t, dual(t)).families {
		l := legacyOf(f)
		entryLen, entryTarget := l.entryLen, l.entryTarget
		plausible := make([]byte, entryLen+targetHeader+8)
		binary.NativeEndian.PutUint16(plausible[entryTarget:], uint16(entryLen))
		if drops, err := l.policyDrops(plausible, 0); drops || err != nil {
			t.Errorf("a verdict of 0: %v, %v", drops, err)
		}
		wild := bytes.Clone(plausible)
		binary.NativeEndian.PutUint16(wild[entryTarget:], 60_000)
		for name, tt := range map[string]struct {
			entries []byte
			at      uint32
		}{
			"empty": {nil, 0}, "behind the end": {plausible, 1 << 31}, "cut off": {plausible[:entryLen+targetHeader], 0},
			"no target": {make([]byte, len(plausible)), 0}, "target elsewhere": {wild, 0},
		} {
			if drops, err := l.policyDrops(tt.entries, tt.at); drops || err == nil {
				t.Errorf("%s: %v, %v, want an error", name, drops, err)
			}
		}
	}
}
