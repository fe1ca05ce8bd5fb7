package balancer

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/storytest"
)

// TestStories plays the stories in testdata. Commands are
//
//	pool TEXT           replaces the pool
//	service NAME …      makes or changes a service, and plans: families=IPv4,IPv6 ip=ADDRESS
//	                    policy=RequireDualStack has=ADDRESS,… (another client wrote that to its status)
//	plan NAME           plans once more
//	delete NAME         deletes the service
//
// Services in later lines are younger.
func TestStories(t *testing.T) {
	storytest.Play(t, "testdata", func(t *testing.T) func(string) []string {
		s := &story{t: t, services: map[string]*corev1.Service{}}
		s.book.full = map[corev1.IPFamily]netip.Addr{}
		s.book.holder = s.holder
		return func(line string) []string { return s.do(strings.Fields(line)) }
	})
}

type story struct {
	t        *testing.T
	book     book
	services map[string]*corev1.Service
	order    []string
}

func (s *story) holder(a netip.Addr) (controller.Key, bool) {
	for _, name := range s.order {
		if svc := s.services[name]; svc != nil && slices.Contains(given(svc), a) {
			return controller.KeyOf(svc), true
		}
	}
	return controller.Key{}, false
}

func (s *story) do(words []string) []string {
	switch {
	case len(words) == 0:
	case words[0] == "pool":
		p, err := ParsePool(strings.Join(words[1:], " "))
		if err != nil {
			return strings.Split(err.Error(), "\n")
		}
		s.book.pool = p
		clear(s.book.full)
	case words[0] == "service":
		svc := s.services[words[1]]
		if svc == nil {
			svc = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[1], CreationTimestamp: metav1.NewTime(time.Unix(int64(len(s.order)), 0))}}
			svc.Spec.Type, svc.Spec.IPFamilies = corev1.ServiceTypeLoadBalancer, []corev1.IPFamily{corev1.IPv4Protocol}
			s.services[words[1]], s.order = svc, append(s.order, words[1])
		}
		for _, w := range words[2:] {
			s.set(svc, w)
		}
		return s.plan(svc)
	case words[0] == "nodes":
		s.book.node = func(a netip.Addr) bool { return slices.Contains(words[1:], a.String()) }
		clear(s.book.full)
	case words[0] == "plan":
		return s.plan(s.services[words[1]])
	case words[0] == "delete":
		delete(s.services, words[1])
		clear(s.book.full)
	default:
		s.t.Fatalf("unknown command %q", words[0])
	}
	return nil
}

func (s *story) set(svc *corev1.Service, word string) {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "families":
		svc.Spec.IPFamilies = nil
		for f := range strings.SplitSeq(value, ",") {
			svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, corev1.IPFamily(f))
		}
	case "policy":
		svc.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicy(value))
	case "ip":
		svc.Spec.LoadBalancerIP = value
	case "has":
		svc.Status = corev1.ServiceStatus{}
		for ip := range strings.SplitSeq(value, ",") {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	default:
		s.t.Fatalf("unknown field %q", name)
	}
}

func (s *story) plan(svc *corev1.Service) (said []string) {
	addresses, trouble := s.book.plan(svc)
	svc.Status.LoadBalancer = statusOf(svc, addresses)
	if len(addresses) == 0 {
		said = append(said, "pending")
	} else {
		said = append(said, words(addresses))
	}
	if trouble != "" {
		said = append(said, "trouble: "+trouble)
	}
	return said
}
