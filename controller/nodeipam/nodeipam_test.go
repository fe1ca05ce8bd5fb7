package nodeipam

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parts divides 10.244.0.0/16 into networks of 256 addresses, of which so many exist.
func parts(n int) Network {
	return Network{Parts: n, Part: func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
	}}
}

func node(name string, cidrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	if len(cidrs) > 0 {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = cidrs[0], cidrs
	}
	return n
}

func controlling(t *testing.T, networks []Network, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	controllertest.Controlling(t, func(c client.Interface, caches *cache.Shared) []run.Task {
		return Tasks(Options{Config: controllertest.Config(c, caches), Pool: Pool{Networks: networks, Reserved: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}}})
	}, f, objs...)
}

// given returns the networks of the nodes.
func given(s *clienttest.Server) map[string]string {
	all := map[string]string{}
	for _, n := range clienttest.All(s, client.Nodes, "") {
		all[n.Name] = strings.Join(n.Spec.PodCIDRs, ",")
		if len(n.Spec.PodCIDRs) > 0 && n.Spec.PodCIDR != n.Spec.PodCIDRs[0] {
			all[n.Name] = "spec.podCIDR is " + n.Spec.PodCIDR
		}
	}
	return all
}

func TestNodesGetDifferentNetworks(t *testing.T) {
	six := Network{Parts: 4, Part: func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(i)}), 64)
	}}
	controlling(t, []Network{parts(8), six}, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, node("c"))
		synctest.Wait()
		got := given(s)
		if got["own"] != "10.244.2.0/23" {
			t.Errorf("the node with a network of its own has %s", got["own"])
		}
		var all []string
		for _, n := range []string{"a", "b", "c"} {
			all = append(all, got[n])
		}
		slices.Sort(all)
		want := []string{"10.244.1.0/24,fd00::/64", "10.244.4.0/24,fd00:0:0:1::/64", "10.244.5.0/24,fd00:0:0:2::/64"}
		if !slices.Equal(all, want) {
			t.Errorf("the nodes have %v, want %v", all, want)
		}
	}, node("own", "10.244.2.0/23"), node("a"), node("b"))
}

func TestFullNetworkWaitsForDeletion(t *testing.T) {
	controlling(t, []Network{parts(2)}, func(t *testing.T, s *clienttest.Server) {
		if got := given(s); got["late"] != "" {
			t.Fatalf("the node late has %s, which another has as well", got["late"])
		}
		found := slices.ContainsFunc(clienttest.All(s, client.Events, ""), func(e *corev1.Event) bool {
			return e.Reason == "CIDRNotAvailable" && e.InvolvedObject.Name == "late"
		})
		if !found {
			t.Error("there is no event CIDRNotAvailable")
		}
		s.Remove(t, node("first"))
		synctest.Wait()
		if got := given(s); got["late"] != "10.244.1.0/24" {
			t.Errorf("after the deletion the node late has %q", got["late"])
		}
	}, node("first", "10.244.1.0/24"), node("late"))
}

// A node whose networks another one has got in the meantime gets others.
func TestLostNetworkIsReplaced(t *testing.T) {
	lost := 0
	controlling(t, []Network{parts(4)}, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb != "patch" || r.Name != "a" {
				return nil
			}
			if lost++; lost > 1 {
				return nil
			}
			return apierrors.NewConflict(corev1.Resource("nodes"), "a", errors.New("podCIDR=10.244.1.0/24 belongs to nodes/other"))
		})
		s.Set(t, node("a"))
		synctest.Wait()
		s.Set(t, node("other", "10.244.1.0/24"))
		time.Sleep(time.Minute)
		if got := given(s); got["a"] != "10.244.2.0/24" || lost != 2 {
			t.Errorf("after %d requests the node has %q, want the next network", lost, got["a"])
		}
	})
}
