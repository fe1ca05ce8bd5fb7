package stats_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/node/stats"
)

func TestRatesAreThoseSinceTheSummaryBefore(t *testing.T) {
	start := time.Unix(1000, 0)
	var r stats.Rates
	for i, step := range []struct {
		after time.Duration
		used  uint64
		want  int64 // nanocores; -1: none
	}{
		{0, 5e9, -1},
		{time.Second / 2, 6e9, -1}, // too early
		{2 * time.Second, 6e9, 5e8},
		{2*time.Second + time.Millisecond, 7e9, 5e8}, // too early: as before
		{12 * time.Second, 26e9, 2e9},
		{13 * time.Second, 1e9, -1}, // a new container
		{15 * time.Second, 1e9, 0},
		{16 * time.Minute, 9e9, -1}, // too late
	} {
		cpu := func() *statsapi.CPUStats {
			return &statsapi.CPUStats{Time: metav1.NewTime(start.Add(step.after)), UsageCoreNanoSeconds: &step.used}
		}
		s := &statsapi.Summary{
			Node: statsapi.NodeStats{CPU: cpu(), SystemContainers: []statsapi.ContainerStats{{Name: "pods", CPU: cpu()}, {Name: "kubelet"}}},
			Pods: []statsapi.PodStats{{PodRef: statsapi.PodReference{UID: "u"}, CPU: cpu(), Containers: []statsapi.ContainerStats{{Name: "c", CPU: cpu()}}}},
		}
		r.Fill(s)
		for what, c := range map[string]*statsapi.CPUStats{
			"node": s.Node.CPU, "system": s.Node.SystemContainers[0].CPU, "pod": s.Pods[0].CPU, "container": s.Pods[0].Containers[0].CPU,
		} {
			got := int64(-1)
			if c.UsageNanoCores != nil {
				got = int64(*c.UsageNanoCores)
			}
			if got != step.want {
				t.Errorf("step %d, %s: %d nanocores, want %d", i, what, got, step.want)
			}
		}
	}
}

func TestRateOfTheRuntimeStays(t *testing.T) {
	var r stats.Rates
	used, rate := uint64(7), uint64(3)
	for range 2 {
		s := &statsapi.Summary{Node: statsapi.NodeStats{CPU: &statsapi.CPUStats{Time: metav1.Now(), UsageCoreNanoSeconds: &used, UsageNanoCores: &rate}}}
		r.Fill(s)
		if *s.Node.CPU.UsageNanoCores != 3 {
			t.Errorf("%d nanocores", *s.Node.CPU.UsageNanoCores)
		}
	}
}
