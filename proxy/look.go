package proxy

import (
	"net/netip"
	"time"
)

// Seen is what a kernel really has for a [Door].
type Seen struct {
	Found    bool // there is a rule
	Backends []netip.AddrPort
	Inside   []netip.AddrPort // as in [Rule]

	// Bound is the backend that the client of the question goes back to, if it is valid,
	// for Left more.
	Bound netip.AddrPort
	Left  time.Duration
}

// PoolSeen is what a forwarder really has for a [PoolID].
type PoolSeen struct {
	Backends []netip.AddrPort
	Suspects []netip.AddrPort // those that did not answer lately, and are avoided

	// Bound and Left are as in [Seen].
	Bound netip.AddrPort
	Left  time.Duration
}
