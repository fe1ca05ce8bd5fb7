package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sampan-io/sampan/internal/resolvconf"
)

// defaultPort is the port of name servers.
const defaultPort = 53

// None as the value of a flag turns off listening, or forwarding.
const None = "none"

// Upstream returns [Options].Upstream for the value of a flag: name servers as ADDRESS or
// ADDRESS:PORT, separated by commas. Empty means the current resolvers of this host; [None] means
// that questions are not forwarded.
func Upstream(list string) (func() (servers []netip.AddrPort, missing string), error) {
	switch list {
	case "":
		return hostUpstream, nil
	case None:
		return func() ([]netip.AddrPort, string) {
			return nil, "names outside of the cluster are not resolved here (--cluster-dns-upstream=none)"
		}, nil
	}
	var servers []netip.AddrPort
	for text := range strings.SplitSeq(list, ",") {
		at, err := ParseAddress(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(servers, at) {
			servers = append(servers, at)
		}
	}
	return func() ([]netip.AddrPort, string) { return servers, "" }, nil
}

// ParseAddress parses the address of a name server, ADDRESS or ADDRESS:PORT. Unspecified and
// multicast addresses are errors.
func ParseAddress(text string) (netip.AddrPort, error) {
	text = strings.TrimSpace(text)
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return at, fmt.Errorf("%q is not a valid name server address, want one such as 192.0.2.53 or 192.0.2.53:5353", text)
		}
		at = netip.AddrPortFrom(a, defaultPort)
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
		return at, fmt.Errorf("%q is not a name server address: it is unspecified or multicast", text)
	}
	return at, nil
}

// hostUpstream returns the resolvers of this host.
func hostUpstream() (servers []netip.AddrPort, missing string) {
	for _, text := range resolvconf.Host().Servers {
		if at, err := ParseAddress(text); err == nil && at.Port() == defaultPort && !slices.Contains(servers, at) {
			servers = append(servers, at)
		}
	}
	if len(servers) == 0 {
		missing = "no upstream resolver: " + resolvconf.File + " of this host names none, except on its loopback address; name one with --cluster-dns-upstream"
	}
	return servers, missing
}
