package balancer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/balancer"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func balancing(t *testing.T, pool string) controllertest.Tasks {
	p, err := balancer.ParsePool(pool)
	if err != nil {
		t.Fatal(err)
	}
	return func(c client.Interface, caches *cache.Shared) []run.Task {
		return balancer.Tasks(balancer.Options{Config: controllertest.Config(c, caches), Pool: p})
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(time.Unix(int64(len(name)), 0))},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// shown returns the addresses, finalizers and annotations of a service as text.
func shown(s *clienttest.Server, name string) string {
	svc := clienttest.Find(s, client.Services, "default", name)
	if svc == nil {
		return "gone"
	}
	var words []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		words = append(words, in.IP+in.Hostname)
		if in.IP != "" && in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			words = append(words, string(*in.IPMode))
		}
	}
	if len(words) == 0 {
		words = append(words, "pending")
	}
	words = append(words, svc.Finalizers...)
	if by := svc.Annotations["sampan.dev/load-balancer"]; by != "" {
		words = append(words, "by "+by)
	}
	return strings.Join(words, " ")
}

const ours = " service.kubernetes.io/load-balancer-cleanup by pool"

func check(t *testing.T, s *clienttest.Server, want map[string]string) {
	t.Helper()
	controllertest.Rest()
	for name, want := range want {
		if got := shown(s, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// events returns the events of a service.
func events(s *clienttest.Server, name string) (all []string) {
	for _, e := range clienttest.All(s, client.Events, "default") {
		if e.InvolvedObject.Name == name {
			all = append(all, fmt.Sprintf("%d× %s %s: %s", e.Count, e.Type, e.Reason, e.Message))
		}
	}
	slices.Sort(all)
	return all
}

func checkEvents(t *testing.T, s *clienttest.Server, name string, want ...string) {
	t.Helper()
	controllertest.Rest()
	if got := events(s, name); !slices.Equal(got, want) {
		t.Errorf("events of %s:\n%s\nwant:\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func remove(t *testing.T, s *clienttest.Server, name string) {
	t.Helper()
	if err := client.Services.Delete(t.Context(), s, "default", name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestAnAddressIsGivenAndTakenBack(t *testing.T) {
	plain := service("plain")
	plain.Spec.Type = corev1.ServiceTypeClusterIP
	foreign := service("foreign")
	foreign.Spec.LoadBalancerClass = new("example.com/cloud")
	named := service("named")
	named.Spec.LoadBalancerClass = new(balancer.Class)
	controllertest.Controlling(t, balancing(t, "192.0.2.10-192.0.2.11"), func(t *testing.T, s *clienttest.Server) {
		check(t, s, map[string]string{"plain": "pending", "foreign": "pending"})
		got := []string{shown(s, "a"), shown(s, "named")}
		slices.Sort(got)
		if want := []string{"192.0.2.10" + ours, "192.0.2.11" + ours}; !slices.Equal(got, want) {
			t.Errorf("addresses %q, want %q", got, want)
		}
		if w := s.Writes(); len(slices.DeleteFunc(w, func(r clienttest.Request) bool { return r.Resource == "events" })) != 2 {
			t.Errorf("for two services there were writes %v", w)
		}
		had := strings.Fields(shown(s, "a"))[0]
		checkEvents(t, s, "a", "1× Normal EnsuredLoadBalancer: Assigned load balancer address "+had)

		// There is none left, so a service that waits gets the next one.
		s.Set(t, service("late"))
		check(t, s, map[string]string{"late": "pending"})
		full := "1× Warning SyncLoadBalancerFailed: No load balancer address: all 2 IPv4 addresses of the pool of load balancer addresses (192.0.2.10-192.0.2.11) are in use"
		checkEvents(t, s, "late", full)
		late := clienttest.Find(s, client.Services, "default", "late").DeepCopy()
		late.Labels = map[string]string{"touched": "yes"}
		s.Set(t, late)
		checkEvents(t, s, "late", full) // once
		remove(t, s, "a")
		check(t, s, map[string]string{"a": "gone", "late": had + ours})
		checkEvents(t, s, "late", "1× Normal EnsuredLoadBalancer: Assigned load balancer address "+had, full)

		// A service that is no load balancer any more gives back what it had.
		s.Set(t, service("next"))
		check(t, s, map[string]string{"next": "pending"})
		late = clienttest.Find(s, client.Services, "default", "late").DeepCopy()
		late.Spec.Type, late.Status = corev1.ServiceTypeNodePort, corev1.ServiceStatus{} // as the API server does
		s.Set(t, late)
		check(t, s, map[string]string{"late": "pending", "next": had + ours})
	}, service("a"), named, plain, foreign)
}

// TestAddressesAreKept checks that a restart changes and writes nothing, even if the pool has grown in between.
func TestAddressesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, service("a"), service("bb"))
		controllertest.Live(t, balancing(t, "192.0.2.10-192.0.2.11"), s, func() { controllertest.Rest() })
		before := []string{shown(s, "a"), shown(s, "bb")}
		s.Writes()
		for _, pool := range []string{"192.0.2.10-192.0.2.11", "192.0.2.1,192.0.2.8/29"} {
			controllertest.Live(t, balancing(t, pool), s, func() { controllertest.Rest() })
			if after := []string{shown(s, "a"), shown(s, "bb")}; !slices.Equal(before, after) {
				t.Errorf("%q became %q", before, after)
			}
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("a restart wrote %v", w)
			}
		}
		// Without a pool they are taken back, and what was deleted goes.
		remove(t, s, "a")
		controllertest.Live(t, balancing(t, ""), s, func() {
			check(t, s, map[string]string{"a": "gone", "bb": "pending"})
			time.Sleep(time.Minute)
			if got := events(s, "bb"); len(got) != 3 || !strings.Contains(got[2], "the cluster has no load balancer addresses") {
				t.Errorf("events = %q", got)
			}
		})
	})
}

// TestWithoutAPool checks that other controllers may give addresses to services without a class. There is an event only if
// none of them does.
func TestWithoutAPool(t *testing.T) {
	taken := service("taken")
	taken.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
	named := service("named")
	named.Spec.LoadBalancerClass = new(balancer.Class)
	controllertest.Controlling(t, balancing(t, ""), func(t *testing.T, s *clienttest.Server) {
		none := "1× Warning SyncLoadBalancerFailed: No load balancer address: the cluster has no load balancer addresses; set them with `sampan up --load-balancer-addresses=…`"
		checkEvents(t, s, "named", none)
		checkEvents(t, s, "a")
		time.Sleep(5 * time.Second)
		svc := clienttest.Find(s, client.Services, "default", "taken").DeepCopy()
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
		s.Set(t, svc)
		time.Sleep(10 * time.Second)
		checkEvents(t, s, "a", none)
		checkEvents(t, s, "taken")
		check(t, s, map[string]string{"taken": "lb.example.com service.kubernetes.io/load-balancer-cleanup"})
		time.Sleep(time.Hour)
		checkEvents(t, s, "a", none)
	}, service("a"), taken, named)
}

// TestOthersMayBalance checks that addresses from other controllers are left as they are, with and without a pool.
func TestOthersMayBalance(t *testing.T) {
	given := service("given")
	given.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.5", IPMode: new(corev1.LoadBalancerIPModeProxy)}}
	controllertest.Controlling(t, balancing(t, "192.0.2.10"), func(t *testing.T, s *clienttest.Server) {
		check(t, s, map[string]string{"given": "203.0.113.5 Proxy"})
		if w := s.Writes(); len(w) > 0 {
			t.Errorf("writes %v", w)
		}
	}, given)
}

// However a write ends, no address is two services'.
func TestCrashes(t *testing.T) {
	controllertest.CrashAnywhere(
		t, balancing(t, "192.0.2.10-192.0.2.12"), 4,
		func() []client.Object { return []client.Object{service("a"), service("bb")} },
		func(t *testing.T, s *clienttest.Server) {
			s.Set(t, service("ccc"))
			remove(t, s, "a")
		},
		func(t *testing.T, s *clienttest.Server) {
			if shown(s, "a") != "gone" || shown(s, "bb") == shown(s, "ccc") || strings.Contains(shown(s, "bb")+shown(s, "ccc"), "pending") {
				t.Errorf("a is %s, bb is %s, ccc is %s", shown(s, "a"), shown(s, "bb"), shown(s, "ccc"))
			}
		},
	)
}
