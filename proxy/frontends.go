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

// A Rule says what becomes of a connection that comes to a Frontend.
type Rule struct {
	Frontend

	// Backends to choose from, at random: ascending, each once, of the family of
	// the Frontend. Without any the connection is refused at once (TCP by a reset, others
	// by ICMP port unreachable), or dropped if Drop is set.
	Backends []netip.AddrPort

	// Inside, if there are any, is chosen from instead when the client is this node or one
	// of its pods, because an externalTrafficPolicy of Local is about clients outside. Such
	// clients are masqueraded as with MasqueradeForeign, whatever Masquerade says.
	Inside []netip.AddrPort

	// Drop, without Backends: connections are dropped and not refused, so that a load
	// balancer's client tries another node.
	Drop bool

	// Affinity says for how long after its last connection a client address goes
	// back to the same backend, as long as that is one; 0 means not at all.
	Affinity time.Duration

	// Sources may connect, all others are dropped. None means that everybody may.
	Sources []netip.Prefix

	Masquerade Masquerade

	// Relayed is true if the backend is a socket of this node, behind which a
	// [Forwarder] chooses among those that serve. Of Backends and Inside each is then one, or none.
	// No address need be changed for it.
	Relayed bool
}

// Masquerade says whose source address is replaced by that of the node, so that
// answers come back through it. A pod that reaches itself through its Service is
// masqueraded always.
type Masquerade int

// Those that are masqueraded.
const (
	MasqueradeNobody    Masquerade = iota
	MasqueradeForeign              // clients that are no pods: what comes to a cluster IP
	MasqueradeEverybody            // what comes in from outside and may leave for another node
)

// A Change is a Rule as it was and as it is to be, for one and the same Frontend. The
// zero Rule stands for none.
type Change struct{ Was, Is Rule }

// A Kernel makes the kernel of this node do what Rules say. Its methods are called
// from one goroutine, if they do not say otherwise.
type Kernel interface {
	// Replace makes these all the rules that there are, in one step, whatever an
	// earlier process left. Established connections are not touched, and there is no
	// moment without rules.
	Replace(ctx context.Context, all []Rule) error

	// Update makes changes in one step, at a cost that depends on them and not on
	// how many rules there are. After an error nothing is changed. Established
	// connections are not touched, but for flows of UDP to a backend that is gone,
	// which are forgotten.
	Update(ctx context.Context, changes []Change) error

	// Settle blocks until no connection stands any more in the queue of a server
	// that was taken out by an earlier Update, or until ctx is over. It may be
	// called from any goroutine.
	Settle(ctx context.Context)

	// Tallies returns what was counted at the frontends to which something has come since there is a rule. It
	// may be called from any goroutine, but not at the same time as itself or Forget.
	Tallies(ctx context.Context) (map[Frontend]Tally, error)

	// Forget returns what was counted at frontends to the end. They begin again with nothing.
	Forget(ctx context.Context, frontends []Frontend) (map[Frontend]Tally, error)

	// Run does, until ctx is over, what rules can't do by themselves, or returns an error if it can't. It is called once, on
	// a goroutine of its own. While it does not run a client whose connection was reset by its server may be led
	// to that one again if it uses the same port again within seconds, also if it is a backend no more.
	Run(ctx context.Context) error

	// Close removes all that was made.
	Close() error
}

// A Tally is what has come to a [Frontend].
type Tally struct {
	Connections uint64 // and flows of UDP, that were sent to a backend
	In, Out     uint64 // bytes of their packets, headers included, from clients and to them, but for those of TCP that carry nothing
	Refused     uint64 // tries to make a connection where no backend was
	Denied      uint64 // and by clients that are not among Sources
}

// Add adds what has come to another Frontend.
func (t *Tally) Add(o Tally) {
	t.Connections += o.Connections
	t.In += o.In
	t.Out += o.Out
	t.Refused += o.Refused
	t.Denied += o.Denied
}

// A Forwarder carries traffic from a socket of this node to the backends of a
// port. Its methods are called from one goroutine, all but Settle.
type Forwarder interface {
	// Set opens a socket for the pool if there is none, makes its backends the
	// ones to choose from for new connections, and returns where it listens: at an
	// address of this node of the pool's family.
	Set(p Pool) (netip.AddrPort, error)

	// Remove closes the socket of a pool. Connections go on.
	Remove(id PoolID)

	// Settle blocks until no connection is on its way any more to a backend
	// that is none any more, or until ctx is over. It is called from a
	// goroutine of its own.
	Settle(ctx context.Context)

	// Restore makes anew what pools need of the node besides their sockets, and somebody else may have removed.
	Restore() error
}

// RelayMark is on packets of a forwarder to backends: rules leave these alone, so that
// what is relayed once is never relayed to itself, whatever an EndpointSlice says.
const RelayMark = 0x736d

// A PoolID names a socket of a [Forwarder]. A port has two if some of its clients get
// the backends of this node alone.
type PoolID struct {
	PortID
	Local bool
}

// A Pool is what a [Forwarder] does at one socket.
type Pool struct {
	PoolID

	// Backends in ascending order, each once.
	Backends []netip.AddrPort

	// Affinity is as in [Rule].
	Affinity time.Duration

	// MaxConnections of TCP at a time that all pools of the Service have together, which therefore say
	// the same; those above are refused. 0 means as many as the forwarder allows to one Service.
	MaxConnections int

	// ProxyProtocol begins each connection to a backend with a header that says who
	// the client is: version 1 or 2 of the PROXY protocol; 0 means none.
	ProxyProtocol int

	// Transparent connections to backends come from the address of the client.
	Transparent bool
}

// A PortID names one port of one Service for one family of addresses.
type PortID struct {
	Service  types.NamespacedName
	Port     string // its name, which may be empty
	Protocol corev1.Protocol
	IPv6     bool
}
