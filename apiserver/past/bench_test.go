package past_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/store/disk"
)

// BenchmarkCreate creates ConfigMaps from 16 goroutines, without and with a history, and reports how many bytes of the
// disk each takes.
func BenchmarkCreate(b *testing.B) {
	for name, keep := range map[string]time.Duration{"off": 0, "on": time.Hour} {
		b.Run(name, func(b *testing.B) {
			w := open(b, keep)
			n := atomic.Int64{}
			gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
			before, err := disk.UsageOf(w.dir)
			if err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					obj := mapOf("a", fmt.Sprint("c", n.Add(1)), "1")
					if _, err := w.api.Create(b.Context(), gvr, "a", "", obj, metav1.CreateOptions{}, ""); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			after, err := disk.UsageOf(w.dir)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(after.Bytes-before.Bytes)/float64(b.N), "disk-B/op")
		})
	}
}
