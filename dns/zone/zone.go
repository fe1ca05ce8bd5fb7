package zone

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/miekg/dns"
)

// DefaultDomain is the default cluster domain.
const DefaultDomain = "cluster.local"

// DefaultTTL is the default TTL of answers. It bounds how outdated a client's cache can be; the
// zone itself has changes at once.
const DefaultTTL = 5 * time.Second

// Options configures a [Zone]. The zero value works.
type Options struct {
	Domain string        // "" means [DefaultDomain]
	TTL    time.Duration // of all records, in whole seconds; 0 means [DefaultTTL]

	// Server are the addresses of the server itself, which is ns.dns in the domain.
	Server []netip.Addr

	// Networks are those of the cluster's pods and Services: the names in in-addr.arpa and ip6.arpa
	// of their addresses are in the zone.
	Networks []netip.Prefix
}

// maxDomain leaves 255 bytes on the wire (RFC 1035, 2.3.4) for the domain, "svc" and three labels
// before that.
const maxDomain = 57

// CheckDomain returns an error if domain, which may end with a dot, can't be a cluster domain.
func CheckDomain(domain string) error {
	domain = strings.TrimSuffix(domain, ".")
	if errs := validation.IsDNS1123Subdomain(domain); len(errs) > 0 {
		return fmt.Errorf("cluster domain %q: %s", domain, errs[0])
	}
	if len(domain) > maxDomain {
		return fmt.Errorf("cluster domain %q has %d characters, want at most %d: longer ones leave too few bytes for the names in it", domain, len(domain), maxDomain)
	}
	return nil // so short that no label can be too long
}

// A Zone holds the names of a cluster. It is safe for concurrent use.
type Zone struct {
	domain   string // "cluster.local."
	suffix   string // ".cluster.local."
	ttl      uint32 // seconds
	v4, v6   []byte // addresses of the server
	networks []netip.Prefix

	mu         sync.RWMutex
	serial     uint32                    // guarded by mu; of the SOA
	services   map[string]*Service       // guarded by mu; by "web.shop"
	namespaces map[string]int            // guarded by mu; number of their services, plus 1 if they are in known
	known      map[string]bool           // guarded by mu; namespaces that exist
	reverse    map[netip.Addr]*Service   // guarded by mu; by address
	shared     map[netip.Addr][]*Service // guarded by mu; addresses of several Services, by name; these are not in reverse
}

// New returns an empty zone. Serial is the first serial of its SOA, which rises with each change;
// the time in seconds is suitable.
func New(o Options, serial uint32) (*Zone, error) {
	if o.Domain == "" {
		o.Domain = DefaultDomain
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if err := CheckDomain(o.Domain); err != nil {
		return nil, err
	}
	if o.TTL < time.Second || o.TTL > 24*time.Hour {
		return nil, errors.New("zone: Options.TTL is less than a second or more than a day")
	}
	domain := dns.Fqdn(o.Domain)
	z := &Zone{
		domain: domain, suffix: "." + domain,
		ttl: uint32(o.TTL / time.Second), networks: o.Networks, serial: serial,
		services: map[string]*Service{}, namespaces: map[string]int{}, known: map[string]bool{}, reverse: map[netip.Addr]*Service{}, shared: map[netip.Addr][]*Service{},
	}
	var own Service
	for _, a := range o.Server {
		own.add(a.Unmap())
	}
	z.v4, z.v6 = own.v4, own.v6
	return z, nil
}

// Domain returns the domain, fully qualified.
func (z *Zone) Domain() string { return z.domain }

// Put adds or replaces a Service; nil removes it. Endpoints are used if it is headless or they have
// hostnames.
func (z *Zone) Put(namespace, name string, s *Service, endpoints []*Endpoints) {
	s = s.with(endpoints)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.replace(name+"."+namespace, namespace, s)
}

// Remove removes a Service.
func (z *Zone) Remove(namespace, name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.replace(name+"."+namespace, namespace, nil)
}

// Len returns the number of Services that have names.
func (z *Zone) Len() int {
	z.mu.RLock()
	defer z.mu.RUnlock()
	return len(z.services)
}

// PutNamespace adds a namespace.
func (z *Zone) PutNamespace(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if isLabel(name) && !z.known[name] {
		z.known[name] = true
		z.namespaces[name]++
		z.serial++
	}
}

// RemoveNamespace removes a namespace.
func (z *Zone) RemoveNamespace(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.known[name] {
		delete(z.known, name)
		z.leave(name)
		z.serial++
	}
}

// leave decrements the count of a namespace. mu is held.
func (z *Zone) leave(namespace string) {
	if z.namespaces[namespace]--; z.namespaces[namespace] <= 0 {
		delete(z.namespaces, namespace)
	}
}

// replace replaces the Service of a key; nil removes it. mu is held.
func (z *Zone) replace(key, namespace string, s *Service) {
	old := z.services[key]
	if old == nil && s == nil {
		return
	}
	z.serial++
	if old != nil {
		old.eachAddress(func(a netip.Addr) { z.release(a, old) })
	}
	switch {
	case s == nil:
		delete(z.services, key)
		z.leave(namespace)
		return
	case old == nil:
		z.namespaces[namespace]++
	}
	z.services[s.name] = s
	s.eachAddress(func(a netip.Addr) { z.claim(a, s) })
}

// claim records that a Service has an address. mu is held.
func (z *Zone) claim(a netip.Addr, s *Service) {
	have := z.shared[a]
	if have == nil {
		first := z.reverse[a]
		if first == nil {
			z.reverse[a] = s
			return
		}
		delete(z.reverse, a)
		have = []*Service{first}
	}
	at, _ := slices.BinarySearchFunc(have, s.name, func(o *Service, name string) int { return strings.Compare(o.name, name) })
	z.shared[a] = slices.Insert(have, at, s)
}

// release removes a Service from an address. mu is held.
func (z *Zone) release(a netip.Addr, s *Service) {
	if z.reverse[a] == s {
		delete(z.reverse, a)
		return
	}
	have := z.shared[a]
	at := slices.Index(have, s)
	if at < 0 {
		return
	}
	switch have = slices.Delete(have, at, at+1); len(have) {
	case 1:
		z.reverse[a] = have[0]
		delete(z.shared, a)
	default:
		z.shared[a] = have
	}
}

// holders calls f with each Service that has an address, by name, and reports whether there is one.
// mu is held.
func (z *Zone) holders(a netip.Addr, f func(*Service)) bool {
	if s := z.reverse[a]; s != nil {
		f(s)
		return true
	}
	for _, s := range z.shared[a] {
		f(s)
	}
	return len(z.shared[a]) > 0
}

// eachAddress calls f with each address once.
func (s *Service) eachAddress(f func(netip.Addr)) {
	for at := 0; at < len(s.v4); at += 4 {
		f(netip.AddrFrom4([4]byte(s.v4[at:])))
	}
	for at := 0; at < len(s.v6); at += 16 {
		f(netip.AddrFrom16([16]byte(s.v6[at:])))
	}
}
