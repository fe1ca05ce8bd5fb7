package scheduler_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
)

// churn does random things to a cluster, lets it come to rest, and asks the model.
func churn(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	schedulingWith(t, scheduler.Options{Plugins: builtin.Default()}, func(t *testing.T, s *clienttest.Server) {
		var flaky atomic.Bool
		flaky.Store(true)
		var mu sync.Mutex
		own := rand.New(rand.NewPCG(seed, 2)) // guarded by mu
		s.Intercept(func(clienttest.Request) error {
			mu.Lock()
			defer mu.Unlock()
			if flaky.Load() && own.IntN(10) == 0 {
				return errors.New("connection reset")
			}
			return nil
		})
		zones := []string{"zone=a", "zone=b"}
		for i := range 200 {
			switch r.IntN(8) {
			case 0:
				words := []string{fmt.Sprintf("n%d", r.IntN(6)), fmt.Sprintf("cpu=%d", 1+r.IntN(4)), fmt.Sprintf("pods=%d", 2+r.IntN(6)), zones[r.IntN(2)]}
				if r.IntN(4) == 0 {
					words = append(words, "cordoned")
				}
				fresh := node(words...)
				if old := clienttest.Find(s, client.Nodes, "", fresh.Name); old != nil {
					// It gets no smaller: the scheduler cannot know at once, while its watch is broken.
					cordoned := fresh.Spec.Unschedulable
					fresh = old.DeepCopy()
					fresh.Spec.Unschedulable = cordoned
				}
				s.Set(t, fresh)
			case 1:
				if pods := clienttest.All(s, client.Pods, ""); len(pods) > 0 {
					s.Remove(t, pods[r.IntN(len(pods))])
				}
			case 2:
				s.BreakWatches(errors.New("connection reset"))
			case 3:
				time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
			default:
				words := []string{fmt.Sprintf("p%03d", i), fmt.Sprintf("cpu=%dm", 100*(1+r.IntN(12))), fmt.Sprintf("priority=%d", r.IntN(3))}
				if r.IntN(3) == 0 {
					words = append(words, "select="+zones[r.IntN(2)])
				}
				if r.IntN(5) == 0 {
					words = append(words, fmt.Sprintf("port=%d", 80+r.IntN(2)))
				}
				s.Set(t, pod(words...))
			}
			if r.IntN(5) == 0 {
				synctest.Wait()
			}
		}
		flaky.Store(false)
		for settle(t, s) {
		}
		for _, fault := range model(clienttest.All(s, client.Nodes, ""), clienttest.All(s, client.Pods, "")) {
			t.Error(fault)
		}
	})
}

// settle waits, does what nodes would do for pods that are to end, and reports whether there were any.
func settle(t *testing.T, s *clienttest.Server) (some bool) {
	t.Helper()
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	for _, p := range clienttest.All(s, client.Pods, "") {
		if p.DeletionTimestamp != nil {
			s.Remove(t, p)
			some = true
		}
	}
	return some
}

// model says what is wrong with a cluster at rest: nodes that are over what they have, pods that should not be where they
// are, and pods that wait although a node could take them. It shares no code with the plug-ins.
func model(nodes []*corev1.Node, pods []*corev1.Pod) []string {
	var faults []string
	on := map[string][]*corev1.Pod{}
	for _, p := range pods {
		on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
	}
	for _, n := range nodes {
		if why := over(n, on[n.Name]); why != "" {
			faults = append(faults, "node "+n.Name+" "+why)
		}
		for _, p := range on[n.Name] {
			for k, v := range p.Spec.NodeSelector {
				if n.Labels[k] != v {
					faults = append(faults, fmt.Sprintf("pod %s is on node %s without %s=%s", p.Name, n.Name, k, v))
				}
			}
		}
	}
	for _, p := range on[""] {
		if p.DeletionTimestamp != nil || len(p.Spec.SchedulingGates) > 0 {
			continue
		}
	next:
		for _, n := range nodes {
			for k, v := range p.Spec.NodeSelector {
				if n.Labels[k] != v {
					continue next
				}
			}
			if !n.Spec.Unschedulable && over(n, append(slices.Clip(on[n.Name]), p)) == "" {
				faults = append(faults, fmt.Sprintf("pod %s waits, and node %s could take it", p.Name, n.Name))
			}
		}
	}
	return faults
}

// over says what a node would have too much of with these pods.
func over(n *corev1.Node, pods []*corev1.Pod) string {
	if room := n.Status.Allocatable.Pods().Value(); int64(len(pods)) > room {
		return fmt.Sprintf("has %d pods of %d", len(pods), room)
	}
	var cpu, memory int64
	ports := map[string]string{}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			cpu += c.Resources.Requests.Cpu().MilliValue()
			memory += c.Resources.Requests.Memory().Value()
			for _, port := range c.Ports {
				key := fmt.Sprint(port.HostPort, port.Protocol)
				if other, taken := ports[key]; taken && port.HostPort != 0 {
					return fmt.Sprintf("has port %d twice, for %s and %s", port.HostPort, other, p.Name)
				}
				ports[key] = p.Name
			}
		}
	}
	if has := n.Status.Allocatable.Cpu().MilliValue(); cpu > has && cpu > 0 {
		return fmt.Sprintf("has to give %d of %d thousandths of a CPU", cpu, has)
	}
	if has := n.Status.Allocatable.Memory().Value(); memory > has && memory > 0 {
		return fmt.Sprintf("has to give %d of %d bytes", memory, has)
	}
	return ""
}
