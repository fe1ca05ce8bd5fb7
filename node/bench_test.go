package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// BenchmarkPodsAtOnce starts pods on a simulated runtime, 100 at once and then 400
// at once, and reports how the second number of pods compares with four times the
// first: what a pod costs must not grow with the number of them. The other figures
// belong to the machine: from creation to the status Running, through the agent.
func BenchmarkPodsAtOnce(b *testing.B) {
	rt, err := simulated.New(simulated.Options{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		b.Fatal(err)
	}
	api := clienttest.New(b)
	n, err := node.New(node.Options{Client: api, Name: "n1", Runtime: rt, MaxPods: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	g := run.NewGroup(b.Context(), 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) {
		if err := n.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	<-n.Ready()
	next := 0
	start := func(count int) time.Duration {
		began := time.Now()
		first := next
		for range count {
			if _, err := client.Pods.Create(b.Context(), api, webPod(fmt.Sprintf("p%d", next))); err != nil {
				b.Fatal(err)
			}
			next++
		}
		for i := first; i < next; i++ {
			api.Await(b, func() error {
				if p := clienttest.Find(api, client.Pods, "default", fmt.Sprintf("p%d", i)); p.Status.Phase != corev1.PodRunning {
					return fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
				}
				return nil
			})
		}
		return time.Since(began)
	}
	start(20) // warm
	var one, small, large time.Duration
	rounds := 0
	for b.Loop() {
		one += start(1)
		small += start(100)
		large += start(400)
		rounds++
	}
	b.ReportMetric(float64(large)/float64(4*small), "x/4x-pods")
	b.ReportMetric(float64(one.Microseconds())/float64(rounds), "µs/pod-alone")
	b.ReportMetric(float64(large.Microseconds())/float64(400*rounds), "µs/pod-of-400")
}
