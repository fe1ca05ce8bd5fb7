package test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sampan-io/sampan/test/hosts"
)

// TestServices asks every kind of Service from everywhere, in both modes, over TCP and UDP,
// IPv4 and IPv6. What is expected is in services_model_test.go.
func TestServices(t *testing.T) {
	w := newServicesWorld(t)
	w.withStandIn()
	all := table()
	for i := range all {
		w.create(&all[i])
	}
	w.startProxies()
	w.caughtUp()
	w.matrix(all)
	w.healthChecks(all)
	w.nothingElse(all)
}

// nothingElse checks that no other address answers: that no rules exist beside those for the addresses of
// these Services and of the one that shows that all rules are in place. Node ports at loopback are for the
// node itself, and are tried here.
func (s *servicesWorld) nothingElse(all []service) {
	const protocols, marks = 2, 1
	want := s.families * protocols * marks
	node := s.Nodes[0]
	for i := range all {
		svc := &all[i]
		for f := range s.families {
			if !svc.foreign {
				want += protocols * len(svc.frontends(f, s.Nodes[:1]))
			}
		}
		if !svc.nodePort {
			continue
		}
		want += protocols * s.families
		for f := range s.families {
			for _, network := range []string{"tcp", "udp"} {
				at := []netip.Addr{loopback, netip.IPv6Loopback()}[f]
				s.ask(svc, node.Host, f, frontend{kind: "node port at loopback", at: netip.AddrPortFrom(at, svc.nodePorts()), node: 1}, network)
			}
		}
	}
	_, metrics, err := s.get(node.Host, netip.AddrPortFrom(loopback, hosts.MetricsPort), "/metrics")
	if line := fmt.Sprintf("\nsampan_proxy_rules %d\n", want); err != nil || !strings.Contains(metrics, line) {
		s.wrong(1, "%s has other rules than these %d: %v\n%s", node.Name, want, err, regexp.MustCompile("(?m)^sampan_proxy_(rules|services) .*").FindAllString(metrics, -1))
	}
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// matrix sends requests to each Service at each of its addresses from each kind of place.
func (s *servicesWorld) matrix(all []service) {
	// A member, one beside it, one on a node with fewer members, nodes, outsiders.
	from := []*hosts.Host{s.Nodes[0].Pods[0], s.Nodes[0].Pods[2], s.Nodes[2].Pods[2], s.Nodes[0].Host, s.Nodes[2].Host, s.Client, s.Far}
	room := make(chan struct{}, 24)
	var asked sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for i := range all {
		svc := &all[i]
		for f := range s.families {
			for _, d := range svc.frontends(f, s.Nodes) {
				for _, h := range from {
					for _, network := range []string{"tcp", "udp"} {
						room <- struct{}{}
						asked.Go(func() {
							m := s.ask(svc, h, f, d, network)
							mu.Lock()
							n += m
							mu.Unlock()
							<-room
						})
					}
				}
			}
		}
	}
	asked.Wait()
	s.t.Logf("%d Services, %d questions", len(all), n)
}

// enough is how often who may answer is asked for at most: that one of four does not come up has a
// chance of less than 1 in 10²⁵.
const enough = 200

// ask sends requests to a Service until every permitted member has answered, and returns the number of requests.
func (s *servicesWorld) ask(svc *service, from *hosts.Host, f int, d frontend, network string) int {
	to, at := svc.expect(s.World, from, f, d)
	patience := patient
	if errors.Is(to.err, hosts.ErrSilent) {
		patience = silence
	}
	seen := map[string]int{}
	wrong := func(format string, args ...any) {
		s.wrong(at, "%s: %s asks its %s %s over %s (decided on node%d): %s", svc.name, from.Name, d.kind, d.at, network, at, fmt.Sprintf(format, args...))
	}
	for n := 1; n <= enough; n++ {
		got, err := from.Ask(network, d.at, patience)
		if bad := to.check(from, got, err, func(a netip.Addr) bool { return isOf(s.World, at, f, a) }); bad != nil {
			wrong("%v", bad)
			return n
		}
		seen[got.Server]++
		switch {
		case to.err != nil:
			return n
		case svc.sticky && len(seen) > 1:
			wrong("%s answered, although the Service has session affinity", strings.Join(slices.Sorted(maps.Keys(seen)), " and "))
			return n
		case svc.sticky && n == 8, !svc.sticky && len(seen) == len(to.servers):
			return n
		}
	}
	wrong("only %s answered in %d questions, want %s", strings.Join(slices.Sorted(maps.Keys(seen)), " and "), enough, strings.Join(to.servers, " and "))
	return enough
}

// healthChecks asks the health-check node ports how many endpoints a node has.
func (s *servicesWorld) healthChecks(all []service) {
	for i := range all {
		svc := &all[i]
		if !svc.balanced || !svc.externalLocal {
			continue
		}
		for n, node := range s.Nodes {
			want := 0
			for _, m := range svc.members {
				if !m.unready && !m.leaving && nodeOf(m.pod) == n+1 {
					want++
				}
			}
			code, body, err := s.get(s.Client, netip.AddrPortFrom(node.IP[0], svc.healthPort()), "/")
			wantCode := http.StatusOK
			if want == 0 {
				wantCode = http.StatusServiceUnavailable
			}
			if err != nil || code != wantCode || !strings.Contains(strings.ReplaceAll(body, " ", ""), fmt.Sprintf(`"localEndpoints":%d`, want)) {
				s.wrong(n+1, "%s: health check of %s: %d %s, %v, want %d and %d local endpoints", svc.name, node.Name, code, body, err, wantCode, want)
			}
		}
	}
}

// TestServicesOfSampan does the same with an API server of this project, as far as that
// has it: with IPv4.
func TestServicesOfSampan(t *testing.T) {
	w := newServicesWorld(t)
	w.withSampan()
	all := slices.DeleteFunc(table(), func(s service) bool { return !s.balanced && !s.external })
	for i := range all {
		w.create(&all[i])
	}
	w.startProxies()
	w.caughtUp()
	w.matrix(all)
	w.healthChecks(all)
}
