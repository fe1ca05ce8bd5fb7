package local

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// A Pair is the networks of pods or of services: one, or one of each IP family, of which the
// first is the primary. The zero Pair is none.
type Pair [2]netip.Prefix

// ParsePair reads networks in CIDR notation, with a comma between them. Whether
// they can be those of a cluster is not looked at.
func ParsePair(text string) (Pair, error) {
	var p Pair
	parts := strings.Split(text, ",")
	if len(parts) > len(p) {
		return Pair{}, fmt.Errorf("must be a network, or one for each IP family separated by a comma, got %d", len(parts))
	}
	for i, part := range parts {
		n, err := netip.ParsePrefix(part)
		if err != nil {
			return Pair{}, fmt.Errorf("must be a network such as 10.244.0.0/16, or one for each IP family such as 10.244.0.0/16,fd00:10:244::/56: %w", err)
		}
		p[i] = n
	}
	return p, nil
}

// IsValid reports whether there is any.
func (p Pair) IsValid() bool { return p[0].IsValid() }

// All returns the networks, the primary one first.
func (p Pair) All() []netip.Prefix {
	switch {
	case p[1].IsValid():
		return p[:]
	case p[0].IsValid():
		return p[:1]
	}
	return nil
}

// String returns what [ParsePair] reads.
func (p Pair) String() string {
	var texts []string
	for _, n := range p.All() {
		texts = append(texts, n.String())
	}
	return strings.Join(texts, ",")
}

// MarshalText implements [encoding.TextMarshaler].
func (p Pair) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Pair) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*p = Pair{}
		return nil
	}
	*p, err = ParsePair(string(text))
	return err
}

// An IPFamily says of which IP families the networks of a cluster are.
type IPFamily string

// The families that a cluster can have.
const (
	IPv4      IPFamily = "ipv4"
	IPv6      IPFamily = "ipv6"
	DualStack IPFamily = "dual"
)

func (f IPFamily) check() error {
	switch f {
	case "", IPv4, IPv6, DualStack:
		return nil
	}
	return fmt.Errorf("--ip-family: must be %[2]s, %[3]s or %[4]s, got %[1]q", string(f), IPv4, IPv6, DualStack)
}

// Family returns the families of the networks; "" if there are none.
func (p Pair) Family() IPFamily {
	switch {
	case p[1].IsValid():
		return DualStack
	case !p[0].IsValid():
		return ""
	case p[0].Addr().Is4():
		return IPv4
	}
	return IPv6
}

// order returns whether each network is of IPv6.
func (p Pair) order() (six []bool) {
	for _, n := range p.All() {
		six = append(six, n.Addr().Is6())
	}
	return six
}

// wanted returns which families are asked for, the primary one first, by networks that
// are said or else by the flag.
func (s Settings) wanted() (six []bool) {
	switch {
	case s.Pods.IsValid():
		return s.Pods.order()
	case s.Services.IsValid():
		return s.Services.order()
	case s.IPFamily == IPv6:
		return []bool{true}
	case s.IPFamily == DualStack:
		return []bool{false, true}
	}
	return []bool{false}
}

// A limit is how long the prefix of a network may be.
type limit struct {
	least, most int
	such        string
}

// limitOf returns the permitted sizes of a network of a family.
//
// A cluster has at least 256 nodes with 256 addresses each. It has at most 2²⁰ IPv6 addresses for
// Services, as in Kubernetes; the rest of a larger network would not be used.
func limitOf(flag string, six bool) limit {
	switch {
	case !six && flag == podFlag:
		return limit{8, 24, "10.244.0.0/16"}
	case !six:
		return limit{8, 24, "10.96.0.0/16"}
	case flag == podFlag:
		return limit{16, 112, "fd00:10:244::/56"}
	}
	return limit{108, 120, "fd00:10:96::/112"}
}

const (
	podFlag     = "--pod-network"
	serviceFlag = "--service-network"
)

// A networkFlag is networks, their users, and their flag.
type networkFlag struct {
	of, flag string
	Pair
}

func (s Settings) flags() []networkFlag {
	return []networkFlag{{"pod", podFlag, s.Pods}, {"service", serviceFlag, s.Services}}
}

// unusable are networks whose addresses mean something else everywhere.
func unusable() []struct {
	kind     string
	networks []netip.Prefix
} {
	return []struct {
		kind     string
		networks []netip.Prefix
	}{
		{"unspecified", prefixes("0.0.0.0/8", "::/128")},
		{"loopback", prefixes("127.0.0.0/8", "::1/128")},
		{"link-local", prefixes("169.254.0.0/16", "fe80::/10")},
		{"multicast", prefixes("224.0.0.0/4", "ff00::/8")},
		{"reserved", prefixes("240.0.0.0/4")},
	}
}

// checkNetworks returns the fault of wanted networks.
func (s Settings) checkNetworks() error {
	errs := []error{s.IPFamily.check(), s.Pods.check(podFlag), s.Services.check(serviceFlag)}
	for _, f := range s.flags() {
		if s.IPFamily != "" && f.IsValid() && f.Family() != s.IPFamily {
			errs = append(errs, fmt.Errorf("%s is %v, which does not match --ip-family=%s", f.flag, f.Pair, s.IPFamily))
		}
	}
	if !s.Pods.IsValid() || !s.Services.IsValid() {
		return errors.Join(errs...)
	}
	if pods, services := s.Pods.order(), s.Services.order(); len(pods) != len(services) || pods[0] != services[0] {
		errs = append(errs, fmt.Errorf("--pod-network %v and --service-network %v must have the same IP families in the same order", s.Pods, s.Services))
	}
	for _, pods := range s.Pods.All() {
		for _, services := range s.Services.All() {
			if pods.Overlaps(services) {
				errs = append(errs, fmt.Errorf("--pod-network %v and --service-network %v overlap", pods, services))
			}
		}
	}
	return errors.Join(errs...)
}

func (p Pair) check(flag string) error {
	var errs []error
	for _, n := range p.All() {
		six := n.Addr().Is6()
		l, family := limitOf(flag, six), "an IPv4"
		if six {
			family = "an IPv6"
		}
		fault := ""
		switch {
		case n.Addr().Is4In6():
			fault = "it is an IPv4-mapped IPv6 network"
		case n.Bits() < l.least || n.Bits() > l.most:
			fault = cmp.Or(fault, fmt.Sprintf("its prefix has %d bits", n.Bits()))
		case n != n.Masked():
			fault = fmt.Sprintf("it has bits set after the prefix; use %v", n.Masked())
		}
		for _, u := range unusable() {
			for _, m := range u.networks {
				if fault == "" && m.Overlaps(n) {
					fault = "it contains " + u.kind + " addresses"
				}
			}
		}
		if fault != "" {
			errs = append(errs, fmt.Errorf("%s: must be %[3]s network of %[4]d to %[5]d bits such as %[6]s, got %[2]v: %[7]s", flag, n, family, l.least, l.most, l.such, fault))
		}
	}
	if order := p.order(); len(order) == 2 && order[0] == order[1] {
		errs = append(errs, fmt.Errorf("%s: must be one network, or one IPv4 and one IPv6 network, got %v", flag, p))
	}
	return errors.Join(errs...)
}
