package zone_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/storytest"
)

// A script is a zone and its updates.
type script struct {
	zone     *zone.Zone
	services map[string]*corev1.Service
	slices   map[string][]*discoveryv1.EndpointSlice
}

// TestZone plays the stories in testdata. Their lines:
//
//	namespace NAME | no-namespace NAME
//	service NS/NAME [ip=A,B] [none] [external=NAME] [publish] [tolerate] [ports=http:80,dns:53/udp]
//	slice NS/NAME IPv4|IPv6 [ports=…] ADDRESS[=HOSTNAME][!]…     ! is not ready
//	no-slices NS/NAME
//	gone NS/NAME
//	ask TYPE NAME [room=N]
func TestZone(t *testing.T) {
	storytest.Play(t, "testdata", func(t *testing.T) func(string) []string {
		z, err := zone.New(zone.Options{
			Server:   []netip.Addr{netip.MustParseAddr("10.244.0.1")},
			Networks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:96::/32")},
		}, 100)
		if err != nil {
			t.Fatal(err)
		}
		s := &script{z, map[string]*corev1.Service{}, map[string][]*discoveryv1.EndpointSlice{}}
		return s.do
	})
}

func (s *script) do(line string) []string {
	words := strings.Fields(line)
	if len(words) < 2 {
		return nil
	}
	switch words[0] {
	case "namespace":
		s.zone.PutNamespace(words[1])
	case "no-namespace":
		s.zone.RemoveNamespace(words[1])
	case "service":
		s.services[words[1]] = newService(words[1], words[2:])
		s.put(words[1])
	case "slice":
		s.slices[words[1]] = append(s.slices[words[1]], newSlice(words[2:]))
		s.put(words[1])
	case "no-slices":
		delete(s.slices, words[1])
		s.put(words[1])
	case "gone":
		delete(s.services, words[1])
		ns, name, _ := strings.Cut(words[1], "/")
		s.zone.Remove(ns, name)
	case "ask":
		return s.ask(words[1:])
	default:
		return []string{"what is " + words[0] + "?"}
	}
	return nil
}

func (s *script) put(key string) {
	if svc := s.services[key]; svc != nil {
		put(s.zone, svc, s.slices[key])
	}
}

func put(z *zone.Zone, svc *corev1.Service, slices []*discoveryv1.EndpointSlice) {
	var endpoints []*zone.Endpoints
	for _, e := range slices {
		endpoints = append(endpoints, zone.NewEndpoints(e))
	}
	z.Put(svc.Namespace, svc.Name, zone.NewService(svc), endpoints)
}

func (s *script) ask(words []string) (said []string) {
	q := zone.Question{Name: words[1], Type: dns.StringToType[words[0]], Room: 512}
	for _, w := range words[2:] {
		if n, ok := strings.CutPrefix(w, "room="); ok {
			q.Room, _ = strconv.Atoi(n)
		}
	}
	var a zone.Answer
	if !s.zone.Answer(q, &a) {
		return []string{"not ours"}
	}
	said = append(said, dns.RcodeToString[a.Rcode])
	tell := func(section string, rrs []dns.RR) {
		for _, r := range rrs {
			said = append(said, section+strings.Join(strings.Fields(r.String()), " "))
		}
	}
	tell("", a.Records)
	tell("authority: ", a.Authority)
	tell("additional: ", a.Extra)
	if a.Chase != "" {
		said = append(said, "go on with "+a.Chase)
	}
	return said
}

func newService(key string, words []string) *corev1.Service {
	ns, name, _ := strings.Cut(key, "/")
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "ip":
			svc.Spec.ClusterIPs = strings.Split(value, ",")
			svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
		case "none":
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "None", []string{"None"}
		case "external":
			svc.Spec.Type, svc.Spec.ExternalName = corev1.ServiceTypeExternalName, value
		case "publish":
			svc.Spec.PublishNotReadyAddresses = true
		case "tolerate":
			svc.Annotations = map[string]string{"service.alpha.kubernetes.io/tolerate-unready-endpoints": "true"}
		case "ports":
			for _, p := range ports(value) {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: *p.Name, Port: *p.Port, Protocol: *p.Protocol})
			}
		}
	}
	return svc
}

func ports(text string) (all []discoveryv1.EndpointPort) {
	for p := range strings.SplitSeq(text, ",") {
		name, rest, _ := strings.Cut(p, ":")
		number, protocol, _ := strings.Cut(rest, "/")
		n, _ := strconv.Atoi(number)
		port, proto := int32(n), corev1.Protocol(strings.ToUpper(protocol))
		if proto == "" {
			proto = corev1.ProtocolTCP
		}
		all = append(all, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &proto})
	}
	return all
}

func newSlice(words []string) *discoveryv1.EndpointSlice {
	e := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressType(words[0])}
	for _, w := range words[1:] {
		if text, ok := strings.CutPrefix(w, "ports="); ok {
			e.Ports = ports(text)
			continue
		}
		w, unready := strings.CutSuffix(w, "!")
		ready := !unready
		address, hostname, named := strings.Cut(w, "=")
		one := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
		if named {
			one.Hostname = &hostname
		}
		e.Endpoints = append(e.Endpoints, one)
	}
	return e
}

// TestEveryAddressGetsItsTurn asks again and again for a service with three addresses.
func TestEveryAddressGetsItsTurn(t *testing.T) {
	z, err := zone.New(zone.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	put(z, newService("shop/db", []string{"none"}), []*discoveryv1.EndpointSlice{newSlice([]string{"IPv4", "10.1.0.1", "10.1.0.2", "10.1.0.3"})})
	var a zone.Answer
	first := map[string]int{}
	for turn := range uint32(6) {
		z.Answer(zone.Question{Name: "db.shop.svc.cluster.local.", Type: dns.TypeA, Room: 512, Turn: turn}, &a)
		if len(a.Records) != 3 {
			t.Fatalf("%d records, want 3", len(a.Records))
		}
		first[a.Records[0].(*dns.A).A.String()]++
	}
	if len(first) != 3 || first["10.1.0.1"] != 2 {
		t.Errorf("first in the answers: %v, want each of three twice", first)
	}
}

// TestRemovedServicesLeaveNoRecords puts and removes Services at random, and compares the zone with one
// that only had the remaining ones.
func TestRemovedServicesLeaveNoRecords(t *testing.T) {
	forms := [][]string{
		{"ip=10.96.0.1"}, {"none", "tolerate"}, {"ip=10.96.0.2,fd00::2", "ports=http:80,dns:53/udp"}, {"none"}, {"external=a.example"}, {"external=s1.a.svc.cluster.local"}, {"ip="},
	}
	ends := [][]string{{"IPv4", "ports=http:8080", "10.1.0.1=h1", "10.1.0.2!", "10.1.0.3"}, {"IPv4", "10.1.0.1=h2"}, {"IPv6", "ports=http:81", "fd01::1=h1"}}
	var questions []zone.Question
	for _, name := range []string{
		"s1.a.svc.cluster.local.", "s2.a.svc.cluster.local.", "s1.b.svc.cluster.local.", "h1.s1.a.svc.cluster.local.", "10-1-0-3.s2.a.svc.cluster.local.",
		"_http._tcp.s1.a.svc.cluster.local.", "_tcp.s2.a.svc.cluster.local.", "a.svc.cluster.local.", "b.svc.cluster.local.", "1-2-3-4.b.pod.cluster.local.",
		"1.0.96.10.in-addr.arpa.", "1.0.1.10.in-addr.arpa.", "3.0.1.10.in-addr.arpa.",
	} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR} {
			questions = append(questions, zone.Question{Name: name, Type: kind, Room: 65535})
		}
	}
	answers := func(z *zone.Zone) (all []string) {
		var a zone.Answer
		for _, q := range questions {
			ours := z.Answer(q, &a)
			line := fmt.Sprint(q, ours, a.Rcode, a.Chase)
			for _, r := range slices.Concat(a.Records, a.Extra) {
				line += "\n  " + r.String()
			}
			all = append(all, line)
		}
		return all
	}
	rapid.Check(t, func(t *rapid.T) {
		worn, err := zone.New(zone.Options{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		type object struct {
			svc *corev1.Service
			end []*discoveryv1.EndpointSlice
		}
		left := map[string]object{}
		spaces := map[string]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{"a/s1", "a/s2", "b/s1"}).Draw(t, "service")
			ns, name, _ := strings.Cut(key, "/")
			switch rapid.SampledFrom([]string{"put", "put", "put", "remove", "namespace", "no namespace"}).Draw(t, "verb") {
			case "put":
				o := object{svc: newService(key, rapid.SampledFrom(forms).Draw(t, "form"))}
				for _, e := range rapid.SliceOfN(rapid.SampledFrom(ends), 0, 3).Draw(t, "slices") {
					o.end = append(o.end, newSlice(e))
				}
				put(worn, o.svc, o.end)
				left[key] = o
			case "remove":
				worn.Remove(ns, name)
				delete(left, key)
			case "namespace":
				worn.PutNamespace(ns)
				spaces[ns] = true
			default:
				worn.RemoveNamespace(ns)
				delete(spaces, ns)
			}
		}
		fresh, err := zone.New(zone.Options{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range left {
			put(fresh, o.svc, o.end)
		}
		for ns := range spaces {
			fresh.PutNamespace(ns)
		}
		if fresh.Len() != worn.Len() {
			t.Fatalf("%d services, want %d", worn.Len(), fresh.Len())
		}
		got, want := answers(worn), answers(fresh)
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("a zone with a past says\n%s\na fresh one\n%s", got[i], want[i])
			}
		}
	})
}

// TestAnswerAllocates pins what an answer may allocate: nothing for a service's addresses.
func TestAnswerAllocates(t *testing.T) {
	z, err := zone.New(zone.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	put(z, newService("shop/web", []string{"ip=10.96.0.1,fd00::1"}), nil)
	put(z, newService("shop/db", []string{"none"}), []*discoveryv1.EndpointSlice{newSlice([]string{"IPv4", "10.1.0.1", "10.1.0.2", "10.1.0.3"})})
	for name, most := range map[string]float64{
		"web.shop.svc.cluster.local.": 0, "db.shop.svc.cluster.local.": 0, "none.shop.svc.cluster.local.": 0,
		"Web.shop.svc.cluster.local.": 1, // for the name in lower case
	} {
		var a zone.Answer
		q := zone.Question{Name: name, Type: dns.TypeA, Room: 512}
		z.Answer(q, &a)
		// The SOA of a negative answer names the server and the mailbox.
		if len(a.Records) == 0 {
			most = 2
		}
		if got := testing.AllocsPerRun(100, func() { z.Answer(q, &a) }); got > most {
			t.Errorf("Answer(%s) allocates %v times, want at most %v", name, got, most)
		}
	}
}

func TestDomains(t *testing.T) {
	for domain, fault := range map[string]string{
		"cluster.local": "", "c": "", "my-cluster.example.": "",
		"-x": "lowercase RFC 1123", "a..b": "lowercase RFC 1123", strings.Repeat("a.", 40) + "b": "at most 57", strings.Repeat("a", 64): "at most",
		strings.Repeat("a", 57): "", strings.Repeat("a", 58): "at most 57",
	} {
		if err := zone.CheckDomain(domain); (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("CheckDomain(%q) = %v, want %q", domain, err, fault)
		}
	}
}

func TestTimes(t *testing.T) {
	for ttl, ok := range map[time.Duration]bool{
		0: true, time.Second: true, 24 * time.Hour: true,
		time.Second - 1: false, 24*time.Hour + 1: false, -time.Second: false,
	} {
		if _, err := zone.New(zone.Options{TTL: ttl}, 1); (err == nil) != ok {
			t.Errorf("a zone with a TTL of %v: %v", ttl, err)
		}
	}
}

// TestWhatIsNotSaid makes objects in which fields are missing that an API server fills.
func TestWhatIsNotSaid(t *testing.T) {
	z, err := zone.New(zone.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	z.Put("shop", "web", zone.NewService(&corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7"}}), nil)
	name, port := "http", int32(80)
	slice := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port}, {Name: &name}, {Name: &name, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
	}
	put(z, &corev1.Service{ObjectMeta: meta("db"), Spec: corev1.ServiceSpec{ClusterIP: "None"}}, []*discoveryv1.EndpointSlice{slice})
	var a zone.Answer
	for asked, want := range map[string]string{
		"web.shop.svc.cluster.local. A":              "web.shop.svc.cluster.local. 5 IN A 10.96.0.7",
		"_http._tcp.db.shop.svc.cluster.local. SRV":  "_http._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 100 80 10-1-0-1.db.shop.svc.cluster.local.",
		"_http._udp.db.shop.svc.cluster.local. SRV":  "",
		"10-1-0-1.db.shop.svc.cluster.local. A":      "10-1-0-1.db.shop.svc.cluster.local. 5 IN A 10.1.0.1",
		"_http._tcp.web.shop.svc.cluster.local. SRV": "",
	} {
		name, kind, _ := strings.Cut(asked, " ")
		z.Answer(zone.Question{Name: name, Type: dns.StringToType[kind], Room: 512}, &a)
		got := ""
		for _, r := range a.Records {
			got += strings.Join(strings.Fields(r.String()), " ")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", asked, got, want)
		}
	}
}

// TestEachNameIsToldOnce begins with each endpoint in turn, of which two have one name.
func TestEachNameIsToldOnce(t *testing.T) {
	z, err := zone.New(zone.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	put(z, newService("shop/db", []string{"none"}), []*discoveryv1.EndpointSlice{newSlice([]string{"IPv4", "ports=http:80", "10.1.0.1=g", "10.1.0.2=h", "10.1.0.3=h", "10.1.0.4=i"})})
	var a zone.Answer
	for turn := range uint32(8) {
		z.Answer(zone.Question{Name: "_http._tcp.db.shop.svc.cluster.local.", Type: dns.TypeSRV, Room: 512, Turn: turn}, &a)
		var targets, addresses []string
		for _, r := range a.Records {
			targets = append(targets, r.(*dns.SRV).Target[:1])
		}
		for _, r := range a.Extra {
			addresses = append(addresses, r.(*dns.A).A.String())
		}
		first := []string{"g", "h", "h", "i"}[turn%4]
		if targets[0] != first {
			t.Errorf("turn %d begins with %s, want %s", turn, targets[0], first)
		}
		slices.Sort(targets)
		slices.Sort(addresses)
		if fmt.Sprint(targets) != "[g h i]" || fmt.Sprint(addresses) != "[10.1.0.1 10.1.0.2 10.1.0.3 10.1.0.4]" {
			t.Errorf("turn %d tells of %v at %v", turn, targets, addresses)
		}
	}
}
