package plugin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// TestHugeAmountsCountAsTheMost has amounts that do not fit an int64.
func TestHugeAmountsCountAsTheMost(t *testing.T) {
	const most = 1 << 48
	for _, text := range []string{"9223372036854776k", "18446744073709551k", "1e999", "9223372036854775808", "9223372036854775807"} {
		q := resource.MustParse(text)
		r := plugin.NewResources(corev1.ResourceList{
			corev1.ResourceCPU: q, corev1.ResourceMemory: q, corev1.ResourceEphemeralStorage: q, corev1.ResourcePods: q, "example.com/x": q,
		})
		if r.MilliCPU != most || r.Memory != most || r.Ephemeral != most || r.Pods != most || r.Other["example.com/x"] != most {
			t.Errorf("%s: %+v, want %d of each", text, r, int64(most))
		}
	}
}
