package zone_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/growthtest"
)

// TestZoneCostsAreLinear puts Services with a list or map at its largest into a zone, asks about them and takes them out.
func TestZoneCostsAreLinear(t *testing.T) {
	put := func(t *testing.T, clusterIP string, grow func(svc *corev1.Service, slice *discoveryv1.EndpointSlice, n int)) {
		growthtest.Linear(t, 4000, func(n int) func() {
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Spec: corev1.ServiceSpec{
				ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Name: "p", Protocol: corev1.ProtocolTCP, Port: 80}},
			}}
			slice := &discoveryv1.EndpointSlice{
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("p"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, Hostname: new("h")}},
			}
			grow(svc, slice, n)
			z, err := zone.New(zone.Options{}, 1)
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				var a zone.Answer
				e := zone.NewEndpoints(slice)
				z.Put("default", "s", zone.NewService(svc), []*zone.Endpoints{e})
				for i, q := range []string{"s.default.svc.cluster.local.", "_p._tcp.s.default.svc.cluster.local.", "h.s.default.svc.cluster.local.", "1.0.1.10.in-addr.arpa."} {
					z.Answer(zone.Question{Name: q, Type: []uint16{dns.TypeA, dns.TypeSRV, dns.TypeA, dns.TypePTR}[i], Room: 1232}, &a)
				}
				z.Remove("default", "s")
			}
		})
	}
	for _, clusterIP := range []string{"10.96.0.1", corev1.ClusterIPNone} {
		for _, f := range growthtest.Fields(reflect.TypeFor[corev1.Service]()) {
			t.Run(fmt.Sprint("service ", f.Path, " ", clusterIP), func(t *testing.T) {
				put(t, clusterIP, func(svc *corev1.Service, _ *discoveryv1.EndpointSlice, n int) { f.Grow(svc, n, growthtest.Distinct) })
			})
		}
		for _, f := range growthtest.Fields(reflect.TypeFor[discoveryv1.EndpointSlice]()) {
			t.Run(fmt.Sprint("slice ", f.Path, " ", clusterIP), func(t *testing.T) {
				put(t, clusterIP, func(_ *corev1.Service, slice *discoveryv1.EndpointSlice, n int) {
					f.Grow(slice, n, growthtest.Distinct)
					for i := range slice.Endpoints {
						slice.Endpoints[i].Addresses = []string{fmt.Sprintf("10.1.%d.%d", i>>8&255, i&255)}
					}
				})
			})
		}
	}
}
