package streaming

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// beginAll begins connections to a pod until one is refused.
func beginAll(f *forwards, pod string) (ends []func()) {
	for {
		end, err := f.begin(pod)
		if err != nil {
			return ends
		}
		ends = append(ends, end)
	}
}

// TestPodsLeaveForwardsForOthers has pods that want as many connections as they can get.
func TestPodsLeaveForwardsForOthers(t *testing.T) {
	f := newForwards(80)
	var all []func()
	for _, tt := range []struct {
		pod  string
		want int
	}{{"a", 40}, {"b", 20}, {"a", 0}, {"c", 10}, {"d", 5}, {"e", 3}, {"f", 1}, {"g", 1}, {"h", 1}, {"i", 1}, {"h", 0}} {
		ends := beginAll(f, tt.pod)
		if len(ends) != tt.want {
			t.Errorf("pod %s has %d more connections, want %d", tt.pod, len(ends), tt.want)
		}
		all = append(all, ends...)
	}
	for _, end := range all {
		end()
	}
	if f.used != 0 || len(f.pods) != 0 {
		t.Errorf("after the end of all, %d are counted, by pods %v", f.used, f.pods)
	}
	if n := len(beginAll(f, "d")); n != 40 {
		t.Errorf("the only pod has %d, want 40", n)
	}
}

func TestForwardLimitLeavesDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64]int{1024: 256, 20_000: 5000, 1 << 20: mostForwards, 1<<64 - 1: mostForwards} {
		if got := forwardLimit(descriptors); got != want {
			t.Errorf("%d descriptors: %d connections, want %d", descriptors, got, want)
		}
	}
}

func TestForwardsOfAllClientsCount(t *testing.T) {
	s := New(Options{})
	s.forwards, s.opened = newForwards(4), newForwards(8)
	s.setBase("http://x")
	for range 2 {
		if _, err := s.PortForward(&cri.PortForwardRequest{PodSandboxId: "p"}); err != nil {
			t.Fatal(err)
		}
	}
	begun, opened, refused := 0, 0, ""
	for _, client := range s.tokens {
		for range 3 {
			if _, err := client.ports.Open(); err == nil {
				opened++
			}
			if _, err := client.ports.Begin(); err != nil {
				refused = err.Error()
				continue
			}
			begun++
		}
	}
	const want = "too many forwarded connections: the pod has 2, and all pods of the node have 2 of 4; " +
		"a pod can have half of what other pods leave, and at least 1"
	if opened != 4 || begun != 2 || refused != want {
		t.Errorf("%d pairs of streams, %d connections, and then %q, want 4, 2 and %q", opened, begun, refused, want)
	}
}
