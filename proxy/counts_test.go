package proxy_test

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/proxy"
)

// came is something that came to a frontend.
func (k *kernel) came(address string, port uint16, t proxy.Tally) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := proxy.Frontend{Address: netip.MustParseAddr(address), Protocol: corev1.ProtocolTCP, Port: port}
	if _, stands := k.rules[d]; !stands {
		k.t.Errorf("something came to %s, where nothing stands", frontendText(d))
	}
	if k.counted == nil {
		k.counted = map[proxy.Frontend]proxy.Tally{}
	}
	sum := k.counted[d]
	sum.Add(t)
	k.counted[d] = sum
}

// series returns the metrics of ports of Services, by service/port and their other labels.
func series(t *testing.T, c []prometheus.Collector) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, s := range samples(t, c) {
		if l := s.labels; l["service"] != "" && s.value > 0 {
			all[fmt.Sprintf("%s/%s %s%s%s", l["service"], l["port"], s.metric[len("sampan_proxy_"):], l["direction"], l["reason"])] = s.value
		}
	}
	return all
}

// TestCountsStayWithTheService reads the metrics of a Service while its frontends are added,
// removed and change owners.
func TestCountsStayWithTheService(t *testing.T) { synctest.Test(t, testCounts) }

func testCounts(t *testing.T) {
	api := clienttest.New(t)
	k := newKernel(t)
	h := start(t, api, k, proxy.Options{})
	check := func(when string, want map[string]float64) {
		t.Helper()
		synctest.Wait()
		if got := series(t, h.proxy.Metrics()); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	noted := func(name, ip string) *corev1.Service {
		return service(func(s *corev1.Service) {
			s.Name, s.Spec.ClusterIP = name, ip
			s.Spec.Type = corev1.ServiceTypeNodePort
			s.Spec.Ports[0].NodePort = 30080
			s.CreationTimestamp = metav1.Now()
		})
	}
	time.Sleep(time.Second)
	h.create(noted("web", "10.0.0.1"))
	h.await("10.0.0.1:80/TCP → nobody, masquerade foreign", "0.0.0.0:30080/TCP → nobody, masquerade")
	check("nothing came", map[string]float64{})

	k.came("10.0.0.1", 80, proxy.Tally{Connections: 2, In: 100, Out: 1000})
	k.came("0.0.0.0", 30080, proxy.Tally{Connections: 1, In: 10, Out: 20, Refused: 3, Denied: 4})
	want := map[string]float64{
		"web/http connections_total": 3, "web/http bytes_totalin": 110, "web/http bytes_totalout": 1020,
		"web/http connections_refused_totalno-endpoints": 3, "web/http connections_refused_totalsource": 4,
	}
	check("frontends are added up", want)

	h.updateService("web", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 })
	h.await("10.0.0.1:80/TCP → nobody, masquerade foreign", "0.0.0.0:30081/TCP → nobody, masquerade")
	check("a frontend went", want)
	k.came("0.0.0.0", 30081, proxy.Tally{Connections: 1})
	want["web/http connections_total"]++
	check("another one came", want)

	// The kernel refuses, and then all rules are replaced.
	k.mu.Lock()
	k.refuse = 1
	k.mu.Unlock()
	h.updateService("web", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30082 })
	h.await("10.0.0.1:80/TCP → nobody, masquerade foreign", "0.0.0.0:30082/TCP → nobody, masquerade")
	check("all was made anew", want)

	// The port gets another name: that is a series of its own, and the old one stays.
	h.updateService("web", func(s *corev1.Service) { s.Spec.Ports[0].Name = "https" })
	check("the port has another name", want)
	k.came("10.0.0.1", 80, proxy.Tally{Connections: 5})
	want["web/https connections_total"] = 5
	check("and is counted by that", want)

	// Another Service wants the same frontend, and has it when the first one is gone.
	time.Sleep(time.Second)
	shared := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.7"} }
	h.updateService("web", shared)
	h.await("10.0.0.1:80/TCP → nobody, masquerade foreign", "0.0.0.0:30082/TCP → nobody, masquerade", "192.0.2.7:80/TCP → nobody, masquerade")
	other := noted("api", "10.0.0.2")
	other.Spec.Type, other.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0
	shared(other)
	h.create(other)
	h.await("10.0.0.1:80/TCP → nobody, masquerade foreign", "0.0.0.0:30082/TCP → nobody, masquerade", "192.0.2.7:80/TCP → nobody, masquerade", "10.0.0.2:80/TCP → nobody, masquerade foreign")
	k.came("192.0.2.7", 80, proxy.Tally{Connections: 1})
	want["web/https connections_total"]++
	check("two want a frontend", want)
	h.delete("web")
	h.await("192.0.2.7:80/TCP → nobody, masquerade", "10.0.0.2:80/TCP → nobody, masquerade foreign")
	check("the one that had it is gone", map[string]float64{})
	k.came("192.0.2.7", 80, proxy.Tally{Connections: 7})
	check("now it is the other's", map[string]float64{"api/http connections_total": 7})

	// A Service that is made again begins with nothing.
	time.Sleep(time.Second)
	h.create(noted("web", "10.0.0.1"))
	h.updateService("web", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30083 })
	h.await("192.0.2.7:80/TCP → nobody, masquerade", "10.0.0.2:80/TCP → nobody, masquerade foreign",
		"10.0.0.1:80/TCP → nobody, masquerade foreign", "0.0.0.0:30083/TCP → nobody, masquerade")
	check("made again", map[string]float64{"api/http connections_total": 7})
	h.delete("api")
	h.await("10.0.0.1:80/TCP → nobody, masquerade foreign", "0.0.0.0:30083/TCP → nobody, masquerade")
	check("nothing is left", map[string]float64{})
}
