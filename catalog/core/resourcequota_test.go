package core_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A quota whose status would not fit in an object is refused. One from before may stay, and shrink.
func TestQuotaIsBounded(t *testing.T) {
	quota := func(n int) *corev1.ResourceQuota {
		hard := corev1.ResourceList{}
		for i := range n {
			hard[corev1.ResourceName(fmt.Sprintf("count/r%06d.example.com", i))] = resource.MustParse("999999999999")
		}
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "n"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	}
	const want = "spec.hard: Too long: may not be more than 393216 bytes"
	for name, c := range map[string]struct {
		now, before int // 0: it is new
		want        string
	}{
		"new":                 {7400, 0, ""},
		"new, too large":      {7500, 0, want},
		"it grows":            {7500, 10, want},
		"it was too large":    {8000, 8000, ""},
		"it was larger still": {8000, 9000, ""},
		"it was less large":   {8001, 8000, want},
	} {
		k, q := kind(t, "ResourceQuota"), quota(c.now)
		errs := k.Validate(t.Context(), q, nil)
		if c.before > 0 {
			errs = k.Validate(t.Context(), q, quota(c.before))
		}
		if got := errs.ToAggregate(); (got == nil) != (c.want == "") || got != nil && !strings.Contains(got.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, got, c.want)
		}
	}
}
