package streaming

import (
	"math"
	"testing"
)

// TestListenAvoidsPorts has all ports avoided but two, which the kernel does not choose in so few tries.
func TestListenAvoidsPorts(t *testing.T) {
	chosen, err := listen(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	used := portOf(chosen)
	defer chosen.Close()
	free, err := listen(t.Context(), map[uint16]bool{used: true})
	if err != nil {
		t.Fatal(err)
	}
	want := portOf(free)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	avoid := map[uint16]bool{}
	for port := range math.MaxUint16 + 1 {
		avoid[uint16(port)] = uint16(port) != want && uint16(port) != used
	}
	l, err := listen(t.Context(), avoid)
	if err != nil {
		t.Fatal(err)
	}
	if got := portOf(l); got != want {
		t.Errorf("it listens on port %d, want %d", got, want)
	}
	_ = l.Close()
	avoid[want], avoid[used] = true, true
	if l, err := listen(t.Context(), avoid); err == nil {
		t.Errorf("it listens on port %d, which is to be avoided", portOf(l))
		_ = l.Close()
	}
}
