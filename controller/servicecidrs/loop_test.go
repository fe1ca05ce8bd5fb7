package servicecidrs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/servicecidrs"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	config := controllertest.Config(c, caches)
	return slices.Concat(servicecidrs.Tasks(config), servicecidrs.RepairTasks(config))
}

func networks(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

func service(name string, ips ...string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ips[0], ClusterIPs: ips, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// ready returns status, reason and message of the condition Ready, or "gone".
func ready(s *clienttest.Server, name string) string {
	c := clienttest.Find(s, client.ServiceCIDRs, "", name)
	if c == nil {
		return "gone"
	}
	var words []string
	for _, c := range c.Status.Conditions {
		words = append(words, c.Type, string(c.Status), c.Reason, c.Message)
	}
	return strings.Join(words, " ")
}

func parentOf(s *clienttest.Server, ip string) string {
	a := clienttest.Find(s, client.IPAddresses, "", ip)
	if a == nil {
		return "none"
	}
	return a.Spec.ParentRef.Resource + "/" + a.Spec.ParentRef.Namespace + "/" + a.Spec.ParentRef.Name
}

func events(s *clienttest.Server, reason string) (messages []string) {
	for _, e := range clienttest.All(s, client.Events, "default") {
		if e.Reason == reason {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

func expire(t *testing.T, s *clienttest.Server, name string) {
	t.Helper()
	if err := client.ServiceCIDRs.Delete(t.Context(), s, "", name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Rest()
}

func TestServiceCIDRStaysWhileItsAddressesAreUsed(t *testing.T) {
	const (
		fine    = "Ready True  Kubernetes Service CIDR is ready"
		blocked = "Ready False Terminating There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
	)
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(time.Minute)
		for _, name := range []string{"free", "used", "inner"} {
			if got := ready(s, name); got != fine {
				t.Errorf("%s is %q, want %q", name, got, fine)
			}
		}
		expire(t, s, "free")
		if ready(s, "free") != fine {
			t.Errorf("free is %s at once; requests under way may still give its addresses", ready(s, "free"))
		}
		expire(t, s, "inner") // the other one contains its addresses
		expire(t, s, "used")
		time.Sleep(time.Minute)
		if ready(s, "free") != "gone" || ready(s, "inner") != "gone" {
			t.Errorf("free is %q, inner %q, want both gone", ready(s, "free"), ready(s, "inner"))
		}
		if got := ready(s, "used"); got != blocked {
			t.Errorf("used is %q, want %q", got, blocked)
		}
		s.Remove(t, clienttest.Find(s, client.Services, "default", "web"))
		time.Sleep(time.Minute)
		if ready(s, "used") != "gone" {
			t.Errorf("without its Service used is %q, want it gone", ready(s, "used"))
		}
	}, networks("free", "10.9.0.0/24"), networks("used", "10.0.0.0/16", "fd00::/112"), networks("inner", "10.0.0.0/24"), service("web", "10.0.0.7"))
}

func TestNewNetworkFreesAnother(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(time.Minute)
		expire(t, s, "old")
		time.Sleep(time.Minute)
		if got := ready(s, "old"); !strings.HasPrefix(got, "Ready False Terminating") {
			t.Fatalf("old is %q, want it blocked", got)
		}
		s.Set(t, networks("new", "10.0.0.0/8"))
		time.Sleep(time.Minute)
		if ready(s, "old") != "gone" {
			t.Errorf("old is %q although another network contains its addresses", ready(s, "old"))
		}
	}, networks("old", "10.0.0.0/16"), service("web", "10.0.0.7"))
}

func TestIPAddressesFollowServices(t *testing.T) {
	foreign := &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.9"},
		Spec:       networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Group: "example.com", Resource: "gateways", Namespace: "a", Name: "g"}},
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		check := func(when string, want map[string]string) {
			t.Helper()
			for ip, parent := range want {
				if got := parentOf(s, ip); got != parent {
					t.Errorf("%s the parent of %s is %s, want %s", when, ip, got, parent)
				}
			}
		}
		if got := parentOf(s, "10.0.0.7"); got != "none" {
			t.Errorf("the IPAddress of a new Service is written at once, as %s; that is for the API server to do", got)
		}
		time.Sleep(time.Minute)
		check("after a while", map[string]string{"10.0.0.7": "services/default/web", "fd00::7": "services/default/web", "10.0.0.9": "gateways/a/g"})
		if got := events(s, "ClusterIPNotAllocated"); len(got) != 2 {
			t.Errorf("events are %q, want 2", got)
		}

		s.Remove(t, clienttest.Find(s, client.IPAddresses, "", "10.0.0.7"))
		controllertest.Rest()
		check("after its deletion", map[string]string{"10.0.0.7": "services/default/web"})

		wrong := clienttest.Find(s, client.IPAddresses, "", "10.0.0.7").DeepCopy()
		wrong.Spec.ParentRef.Name = "other"
		s.Set(t, wrong)
		controllertest.Rest()
		check("with another parent", map[string]string{"10.0.0.7": "services/default/web"})

		one := clienttest.Find(s, client.Services, "default", "web").DeepCopy()
		one.Spec.ClusterIPs = one.Spec.ClusterIPs[:1]
		s.Set(t, one)
		controllertest.Rest()
		check("without the second family", map[string]string{"10.0.0.7": "services/default/web", "fd00::7": "none"})

		s.Remove(t, one)
		controllertest.Rest()
		check("without the Service", map[string]string{"10.0.0.7": "none", "10.0.0.9": "gateways/a/g"})
	}, service("web", "10.0.0.7", "fd00::7"), service("headless", corev1.ClusterIPNone), foreign)
}
