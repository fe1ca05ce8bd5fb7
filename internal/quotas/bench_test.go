package quotas_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/internal/quotas"
)

// BenchmarkLedger makes the ledger of 5,000 pods, as for the first creation after a start, and changes a pod in it.
func BenchmarkLedger(b *testing.B) {
	r, _ := quotas.Of(schema.GroupResource{Resource: "pods"})
	var pods []*corev1.Pod
	for i := range 5000 {
		p := &corev1.Pod{}
		p.Name = fmt.Sprint("p", i)
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		}}}}
		pods = append(pods, p)
	}
	q := &corev1.ResourceQuota{}
	q.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("1"), "requests.cpu": resource.MustParse("1")}
	ledger := func() *quotas.Ledger {
		l := quotas.NewLedger(r)
		for _, p := range pods {
			l.Set(p, now)
		}
		l.Used(q, now)
		return l
	}
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			ledger()
		}
	})
	b.Run("set", func(b *testing.B) {
		l := ledger()
		for b.Loop() {
			l.Set(pods[0], now)
		}
	})
}
