package proxy

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Frontend is an address and port of a Service, as clients write it on their packets.
type Frontend struct {
	// Address is 0.0.0.0 or :: for a node port, which is at every address of this
	// node but those of loopback. It is never a 4-in-6 address.
	Address  netip.Addr
	Protocol corev1.Protocol // TCP, UDP or SCTP
	Port     uint16
}

// A Rule is how the connections to a Frontend are handled.
type Rule struct {
	Frontend

	// Backends are the addresses to choose from at random, ascending, without duplicates, all of
	// the family of the Frontend. If there are none the connection is refused at once (TCP by a
	// reset, other protocols by ICMP port unreachable), or dropped if Drop is set.
	Backends []netip.AddrPort

	// Inside, if not nil, replaces Backends for connections from this node and its pods, because an
	// externalTrafficPolicy of Local is about clients outside the cluster. Such clients are
	// masqueraded as with MasqueradeForeign, whatever Masquerade is.
	Inside []netip.AddrPort

	// Drop has connections dropped, and not refused, if there are no Backends, so that a load
	// balancer's client tries another node.
	Drop bool

	// Affinity is how long after its last connection a client address goes back to the same
	// backend, if that still is one; 0 is no affinity.
	Affinity time.Duration

	// Sources are the networks that may connect; connections from others are dropped. If it is
	// empty every client may connect.
	Sources []netip.Prefix

	Masquerade Masquerade

	// Relayed is true if the backend is a socket of this node, behind which a [Forwarder] chooses
	// among the endpoints. Backends and Inside then have at most one element each. The client's
	// address need not be changed for it.
	Relayed bool
}

// Masquerade selects the clients whose source address is replaced by that of the node, so that
// answers come back through it. A pod that reaches itself through its Service is always
// masqueraded.
type Masquerade int

// The values of Masquerade.
const (
	MasqueradeNobody    Masquerade = iota
	MasqueradeForeign              // clients that are not pods, for a cluster IP
	MasqueradeEverybody            // all clients, for traffic from outside that may leave for another node
)

// A Change is a Rule before and after, for the same Frontend. The zero Rule means no rule.
type Change struct{ Was, Is Rule }

// A Kernel makes the kernel of this node apply Rules. Its methods are called from one goroutine
// unless they say otherwise.
type Kernel interface {
	// Replace replaces all rules, including those of an earlier process, in one step. It leaves
	// established connections alone, and there is no moment without rules.
	Replace(ctx context.Context, all []Rule) error

	// Update makes changes in one step, at a cost that depends on them and not on the number of
	// rules. After an error nothing has changed. It leaves established connections alone except
	// flows of UDP to a removed backend, which are deleted.
	Update(ctx context.Context, changes []Change) error

	// Settle blocks until no connection is waiting in the accept queue of a server that an earlier
	// Update removed, or until ctx is cancelled. It may be called from any goroutine.
	Settle(ctx context.Context)

	// Tallies returns the counters of all frontends that have received anything since their rule
	// was made. It may be called from any goroutine, but not concurrently with itself or Forget.
	Tallies(ctx context.Context) (map[Frontend]Tally, error)

	// Forget returns the final counters of frontends, and resets them.
	Forget(ctx context.Context, frontends []Frontend) (map[Frontend]Tally, error)

	// Run does, until ctx is cancelled, what rules can't do by themselves; it returns an error if
	// it can't. It is called once, on a separate goroutine. While it does not run, a client whose
	// connection was reset by its server may reach that server again if it reuses the port within
	// seconds, even if the server is no longer a backend.
	Run(ctx context.Context) error

	// Close removes everything that the Kernel has made.
	Close() error
}

// A Tally is the traffic that a [Frontend] has received.
type Tally struct {
	Connections uint64 // sent to a backend, flows of UDP included
	In, Out     uint64 // bytes of packets from and to clients, headers included, except TCP packets without data
	Refused     uint64 // connections to a frontend without a backend
	Denied      uint64 // connections from clients that are not among Sources
}

// Add adds the tally of another Frontend.
func (t *Tally) Add(o Tally) {
	t.Connections += o.Connections
	t.In += o.In
	t.Out += o.Out
	t.Refused += o.Refused
	t.Denied += o.Denied
}

// A Forwarder carries traffic from a socket of this node to the backends of a port. All methods but
// Settle are called from one goroutine.
type Forwarder interface {
	// Set opens a socket for the pool if it has none, makes its Backends those of new connections,
	// and returns where the socket listens: at an address of this node of the pool's family.
	Set(p Pool) (netip.AddrPort, error)

	// Remove closes the socket of a pool. Its connections go on.
	Remove(id PoolID)

	// Settle blocks until no connection to a removed backend is still being made, or until ctx is
	// cancelled. It may be called from any goroutine.
	Settle(ctx context.Context)

	// Restore repairs what pools need of the node besides their sockets, after another program may
	// have removed it.
	Restore() error
}

// RelayMark is the mark of packets from a forwarder to backends. Rules leave these alone, so that a
// relayed connection is never relayed to the forwarder again, whatever an EndpointSlice has.
const RelayMark = 0x736d

// A PoolID names a socket of a [Forwarder]. A port has two if some of its clients get only the
// backends of this node.
type PoolID struct {
	PortID
	Local bool
}

// A Pool is the task of a [Forwarder] at one socket.
type Pool struct {
	PoolID

	// Backends are ascending, without duplicates.
	Backends []netip.AddrPort

	// Affinity is as in [Rule].
	Affinity time.Duration

	// MaxConnections is the largest number of TCP connections at a time that all pools of the
	// Service may have together (so all have the same value); further ones are refused. 0 is the
	// forwarder's default for one Service.
	MaxConnections int

	// ProxyProtocol is the version (1 or 2) of the PROXY protocol header with the client's address
	// that each connection to a backend begins with; 0 is no header.
	ProxyProtocol int

	// Transparent has connections to backends come from the address of the client.
	Transparent bool
}

// A PortID names one port of one Service for one address family.
type PortID struct {
	Service  types.NamespacedName
	Port     string // its name, which may be empty
	Protocol corev1.Protocol
	IPv6     bool
}
