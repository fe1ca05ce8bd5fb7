package zone

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// Version is the implemented version of the Kubernetes DNS specification.
const Version = "1.1.0"

// A Question asks for the records of a type, in class IN.
type Question struct {
	Name string // fully qualified, as it was asked
	Type uint16

	// Room is the largest size of the answer in bytes. If the records certainly do not fit, only as
	// many are added as show that.
	Room int

	// Turn selects the first of several records: it rises with each question, so that clients that
	// use the first record are spread.
	Turn uint32
}

// An Answer is the answer to a question. It can be reused; its contents are valid until then.
type Answer struct {
	Rcode     int // dns.RcodeSuccess or dns.RcodeNameError
	Records   []dns.RR
	Authority []dns.RR
	Extra     []dns.RR

	// Chase is the name outside of the zone that the last of Records, a CNAME, points to; empty
	// means that the answer is complete.
	Chase string

	// The records themselves, so that answers do not allocate them.
	a    []dns.A
	aaaa []dns.AAAA
	soa  dns.SOA
}

func (a *Answer) reset() {
	a.Rcode, a.Chase = dns.RcodeSuccess, ""
	a.Records, a.Authority, a.Extra = a.Records[:0], a.Authority[:0], a.Extra[:0]
	a.a, a.aaaa = a.a[:0], a.aaaa[:0]
}

// The smallest size of a record whose name is compressed: a pointer, type, class, TTL, length; and
// the address.
const (
	leastA    = 12 + 4
	leastAAAA = 12 + 16
	leastSRV  = 12 + 6 + 2
)

// maxAliases bounds the length of a chain of ExternalName Services.
const maxAliases = 8

// Answer writes the answer to a question to into, and reports whether the name is in the zone. If
// it is not, into is empty, and the question must be forwarded.
func (z *Zone) Answer(q Question, into *Answer) (ours bool) {
	into.reset()
	name := strings.ToLower(q.Name)
	z.mu.RLock()
	defer z.mu.RUnlock()
	rest, in := z.relative(name)
	if !in {
		return z.answerReverse(q, name, into)
	}
	exists := z.lookUp(q, q.Name, rest, into, 0)
	if !exists {
		into.Rcode = dns.RcodeNameError
	}
	if (len(into.Records) == 0 || !exists) && into.Chase == "" {
		z.authority(into, z.domain)
	}
	return true
}

// relative returns the part of a name before the domain, and whether the name is in the domain.
func (z *Zone) relative(name string) (string, bool) {
	if name == z.domain {
		return "", true
	}
	return under(name, z.suffix)
}

// under returns the part of a name before end, which begins with a dot. An escaped dot, after a
// backslash, is part of a label and does not count.
func under(name, end string) (rest string, ok bool) {
	if rest, ok = strings.CutSuffix(name, end); !ok {
		return "", false
	}
	escapes := len(rest) - len(strings.TrimRight(rest, `\`))
	return rest, escapes%2 == 0
}

func (z *Zone) header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: z.ttl}
}

// authority adds the SOA, which says how long a negative answer is valid. mu is held.
func (z *Zone) authority(into *Answer, apex string) {
	into.Authority = append(into.Authority, z.soa(into, apex))
}

// Times of the SOA for secondary servers, of which there are none.
const (
	refresh = 7200  // seconds
	retry   = 1800  // seconds
	expire  = 86400 // seconds
)

func (z *Zone) soa(into *Answer, apex string) *dns.SOA {
	into.soa = dns.SOA{
		Hdr: z.header(apex, dns.TypeSOA), Ns: "ns.dns" + z.suffix, Mbox: "hostmaster" + z.suffix,
		Serial: z.serial, Refresh: refresh, Retry: retry, Expire: expire, Minttl: z.ttl,
	}
	return &into.soa
}

// lookUp adds the records of a name and reports whether it exists. Rest is the name in lower case,
// without the domain; owner is the name as it was asked. mu is held.
func (z *Zone) lookUp(q Question, owner, rest string, into *Answer, depth int) bool {
	switch rest {
	case "":
		z.apex(q, owner, into)
		return true
	case "svc", "pod", "dns":
		return true
	case "ns.dns":
		z.addresses(q, owner, z.v4, z.v6, into)
		return true
	case "dns-version":
		if q.Type == dns.TypeTXT || q.Type == dns.TypeANY {
			into.Records = append(into.Records, &dns.TXT{Hdr: z.header(owner, dns.TypeTXT), Txt: []string{Version}})
		}
		return true
	}
	if below, ok := strings.CutSuffix(rest, ".svc"); ok {
		return z.lookUpService(q, owner, below, into, depth)
	}
	if below, ok := strings.CutSuffix(rest, ".pod"); ok {
		return z.lookUpPod(q, owner, below, into)
	}
	return false
}

// apex adds the records of the domain itself.
func (z *Zone) apex(q Question, owner string, into *Answer) {
	switch q.Type {
	case dns.TypeSOA:
		into.Records = append(into.Records, z.soa(into, owner))
	case dns.TypeNS:
		server := "ns.dns" + z.suffix
		into.Records = append(into.Records, &dns.NS{Hdr: z.header(owner, dns.TypeNS), Ns: server})
		into.Extra = z.glue(into.Extra, server, z.v4, z.v6)
	case dns.TypeANY:
		z.any(owner, into)
	}
}

// any adds the minimal answer to a question for all records (RFC 8482, 4.2).
func (z *Zone) any(owner string, into *Answer) {
	into.Records = append(into.Records, &dns.HINFO{Hdr: z.header(owner, dns.TypeHINFO), Cpu: "RFC8482"})
}

// lookUpService answers for names that end with ".svc"; rest is the part before that. mu is held.
func (z *Zone) lookUpService(q Question, owner, rest string, into *Answer, depth int) bool {
	at := strings.LastIndexByte(rest, '.')
	if at < 0 {
		return z.namespaces[rest] > 0
	}
	at = strings.LastIndexByte(rest[:at], '.') + 1
	s := z.services[rest[at:]]
	if !s.exists() {
		return false
	}
	if at == 0 {
		z.answerService(q, owner, s, into, depth)
		return true
	}
	below := rest[:at-1]
	if protocol, ok := strings.CutPrefix(below, "_"); ok {
		if name, rest, ok := strings.Cut(protocol, "."); ok {
			protocol, ok := strings.CutPrefix(rest, "_")
			return ok && z.answerSRV(q, owner, s, name, protocol, into)
		}
		return s.speaks(protocol)
	}
	found := s.named(below)
	for _, h := range found {
		z.address(q, owner, h.address, into)
	}
	if len(found) > 0 && q.Type == dns.TypeANY {
		z.any(owner, into)
	}
	return len(found) > 0
}

// speaks reports whether a port of that protocol has a name, so that there are names below "_tcp".
func (s *Service) speaks(protocol string) bool {
	for _, p := range s.ports {
		if p.protocol == protocol {
			return true
		}
	}
	if !s.headless {
		return false
	}
	for _, h := range s.hosts {
		for _, p := range h.ports {
			if p.protocol == protocol {
				return true
			}
		}
	}
	return false
}

// answerService answers for a Service's own name. mu is held.
func (z *Zone) answerService(q Question, owner string, s *Service, into *Answer, depth int) {
	if s.alias == "" {
		z.addresses(q, owner, s.v4, s.v6, into)
		return
	}
	if q.Type == dns.TypeANY {
		z.any(owner, into)
		return
	}
	into.Records = append(into.Records, &dns.CNAME{Hdr: z.header(owner, dns.TypeCNAME), Target: s.alias})
	if q.Type == dns.TypeCNAME || depth == maxAliases || into.has(s.alias) {
		return // for a loop of aliases the answer has the known part
	}
	rest, ours := z.relative(s.alias)
	if !ours {
		into.Chase = s.alias
		return
	}
	before := len(into.Records)
	if !z.lookUp(q, s.alias, rest, into, depth+1) {
		into.Rcode = dns.RcodeNameError // of the name at the end of the chain (RFC 6604)
	}
	if len(into.Records) == before {
		z.authority(into, z.domain)
	}
}

// has reports whether the answer has records of a name already.
func (a *Answer) has(name string) bool {
	for _, r := range a.Records {
		if strings.EqualFold(r.Header().Name, name) {
			return true
		}
	}
	return false
}

// addresses adds the addresses of the type in question, starting with the one whose turn it is.
func (z *Zone) addresses(q Question, owner string, v4, v6 []byte, into *Answer) {
	switch q.Type {
	case dns.TypeA:
		n := len(v4) / net.IPv4len
		for i := range min(n, q.Room/leastA+1) {
			into.addA(z.header(owner, dns.TypeA), part(v4, (i+int(q.Turn%uint32(n)))%n, net.IPv4len))
		}
	case dns.TypeAAAA:
		n := len(v6) / net.IPv6len
		for i := range min(n, q.Room/leastAAAA+1) {
			into.addAAAA(z.header(owner, dns.TypeAAAA), part(v6, (i+int(q.Turn%uint32(n)))%n, net.IPv6len))
		}
	case dns.TypeANY:
		z.any(owner, into)
	}
}

// part returns the i-th address, each of size bytes.
func part(all []byte, i, size int) net.IP { return all[i*size : (i+1)*size : (i+1)*size] }

func (a *Answer) addA(h dns.RR_Header, ip net.IP) {
	a.a = append(a.a, dns.A{Hdr: h, A: ip})
	a.Records = append(a.Records, &a.a[len(a.a)-1])
}

func (a *Answer) addAAAA(h dns.RR_Header, ip net.IP) {
	a.aaaa = append(a.aaaa, dns.AAAA{Hdr: h, AAAA: ip})
	a.Records = append(a.Records, &a.aaaa[len(a.aaaa)-1])
}

// address adds one address if it is of the type in question.
func (z *Zone) address(q Question, owner string, ip netip.Addr, into *Answer) {
	switch {
	case q.Type == dns.TypeA && ip.Is4():
		into.addA(z.header(owner, dns.TypeA), ip.AsSlice())
	case q.Type == dns.TypeAAAA && ip.Is6():
		into.addAAAA(z.header(owner, dns.TypeAAAA), ip.AsSlice())
	}
}

// glue returns extra with the addresses of a name that is in an answer.
func (z *Zone) glue(extra []dns.RR, owner string, v4, v6 []byte) []dns.RR {
	for i := range len(v4) / net.IPv4len {
		extra = append(extra, &dns.A{Hdr: z.header(owner, dns.TypeA), A: part(v4, i, net.IPv4len)})
	}
	for i := range len(v6) / net.IPv6len {
		extra = append(extra, &dns.AAAA{Hdr: z.header(owner, dns.TypeAAAA), AAAA: part(v6, i, net.IPv6len)})
	}
	return extra
}

// All SRV records have equal priority and weight.
const (
	priority = 0
	weight   = 100
)

// answerSRV answers for "_http._tcp" of a Service and reports whether it has that port.
func (z *Zone) answerSRV(q Question, owner string, s *Service, name, protocol string, into *Answer) bool {
	asked := q.Type == dns.TypeSRV
	found := false
	for _, p := range s.ports {
		if p.name.Value() != name || p.protocol != protocol {
			continue
		}
		found = true
		if asked {
			target := s.name + ".svc" + z.suffix
			z.addSRV(owner, p.number, target, into)
			into.Extra = z.glue(into.Extra, target, s.v4, s.v6)
		}
	}
	if s.headless && len(s.hosts) > 0 {
		found = z.answerHostsSRV(q, owner, s, name, protocol, into) || found
	}
	if found && q.Type == dns.TypeANY {
		z.any(owner, into)
	}
	return found
}

// answerHostsSRV adds a record for each endpoint of a headless Service and port number.
func (z *Zone) answerHostsSRV(q Question, owner string, s *Service, name, protocol string, into *Answer) (found bool) {
	n := len(s.hosts)
	first := int(q.Turn % uint32(n))
	// Endpoints of one name are adjacent: begin with the first one of its name.
	for first > 0 && s.hosts[first-1].name == s.hosts[first].name {
		first--
	}
	most := q.Room/leastSRV + 1
	var target string
	var last *host
	for i := range n {
		h := &s.hosts[(first+i)%n]
		for _, p := range h.ports {
			if p.name.Value() != name || p.protocol != protocol {
				continue
			}
			if found = true; q.Type != dns.TypeSRV {
				return true
			}
			if last == nil || last.name != h.name {
				target = h.name + "." + s.name + ".svc" + z.suffix
			}
			if !duplicate(into.Records, target, p.number) {
				z.addSRV(owner, p.number, target, into)
			}
			if last != h {
				var one Service
				one.add(h.address)
				into.Extra = z.glue(into.Extra, target, one.v4, one.v6)
			}
			last = h
		}
		if len(into.Records) >= most {
			break
		}
	}
	return found
}

// duplicate reports whether the last records have this target and port already: those of one name
// are adjacent.
func duplicate(records []dns.RR, target string, number uint16) bool {
	for _, record := range slices.Backward(records) {
		r, ok := record.(*dns.SRV)
		if !ok || r.Target != target {
			return false
		}
		if r.Port == number {
			return true
		}
	}
	return false
}

func (z *Zone) addSRV(owner string, number uint16, target string, into *Answer) {
	into.Records = append(into.Records, &dns.SRV{
		Hdr: z.header(owner, dns.TypeSRV), Priority: priority, Weight: weight, Port: number, Target: target,
	})
}

// lookUpPod answers for names that end with ".pod": they contain an address, which need not be that
// of a pod. mu is held.
func (z *Zone) lookUpPod(q Question, owner, rest string, into *Answer) bool {
	said, namespace, ok := strings.Cut(rest, ".")
	if !ok {
		return z.namespaces[rest] > 0
	}
	if z.namespaces[namespace] == 0 {
		return false
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(said, "-", "."))
	if err != nil {
		if a, err = netip.ParseAddr(strings.ReplaceAll(said, "-", ":")); err != nil || a.Is4In6() || a.Zone() != "" {
			return false
		}
	}
	z.address(q, owner, a, into)
	if q.Type == dns.TypeANY {
		z.any(owner, into)
	}
	return true
}

// answerReverse answers for names of addresses, and of networks. The zone has all names in the
// cluster's networks, even if no Service has the address. mu is held.
func (z *Zone) answerReverse(q Question, name string, into *Answer) (ours bool) {
	of, apex, rest, ok := prefixOf(name)
	if !ok {
		return false
	}
	held := rest == "" && of.IsSingleIP() && z.holders(of.Addr(), func(s *Service) {
		if q.Type == dns.TypePTR {
			z.addPTR(q, s, of.Addr(), into)
		}
	})
	if !held {
		if !slices.ContainsFunc(z.networks, func(n netip.Prefix) bool { return n.Bits() <= of.Bits() && n.Contains(of.Addr()) }) {
			return false
		}
		// There may be names below that of a network, unless it is a single address.
		if rest != "" || of.IsSingleIP() {
			into.Rcode = dns.RcodeNameError
		}
		z.authority(into, apex)
		return true
	}
	if q.Type == dns.TypeANY {
		z.any(q.Name, into)
	}
	if len(into.Records) == 0 {
		z.authority(into, apex)
	}
	return true
}

// addPTR adds the names of an address in a Service.
func (z *Zone) addPTR(q Question, s *Service, a netip.Addr, into *Answer) {
	add := func(target string) {
		into.Records = append(into.Records, &dns.PTR{Hdr: z.header(q.Name, dns.TypePTR), Ptr: target + s.name + ".svc" + z.suffix})
	}
	if !s.headless {
		add("")
		return
	}
	for _, h := range s.hosts {
		if h.address == a {
			add(h.name + ".")
		}
	}
}

// prefixOf returns the network, or the address, of a name under in-addr.arpa or ip6.arpa, the
// domain that it is under, and the invalid rest of the name.
func prefixOf(name string) (of netip.Prefix, apex, rest string, ok bool) {
	if rest, ok = under(name, ".in-addr.arpa."); ok {
		var b [net.IPv4len]byte
		n := 0
		for ; n < len(b) && rest != ""; n++ {
			at := strings.LastIndexByte(rest, '.') + 1
			part, ok := octet(rest[at:])
			if !ok {
				break
			}
			b[n], rest = part, rest[:max(at-1, 0)]
		}
		return netip.PrefixFrom(netip.AddrFrom4(b), 8*n), "in-addr.arpa.", rest, true
	}
	if rest, ok = under(name, ".ip6.arpa."); ok {
		var b [net.IPv6len]byte
		n := 0
		for ; n < 2*len(b) && rest != ""; n++ {
			at := strings.LastIndexByte(rest, '.') + 1
			part := strings.IndexByte("0123456789abcdef", rest[at])
			if len(rest) != at+1 || part < 0 {
				break
			}
			b[n/2] |= byte(part) << (4 * (1 - n%2))
			rest = rest[:max(at-1, 0)]
		}
		return netip.PrefixFrom(netip.AddrFrom16(b), 4*n), "ip6.arpa.", rest, true
	}
	return of, "", "", false
}

// octet parses a number in the name of an address.
func octet(label string) (byte, bool) {
	n := 0
	for _, c := range []byte(label) {
		if c < '0' || c > '9' || len(label) > 3 || label[0] == '0' && len(label) > 1 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return byte(n), label != "" && n <= 255
}
