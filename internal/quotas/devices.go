package quotas

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const countDeviceClaims = corev1.ResourceName("count/resourceclaims." + resourcev1.GroupName)

func countsForDeviceClaims(name corev1.ResourceName) bool {
	return name == countDeviceClaims || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass)
}

// deviceClaimUsage counts a ResourceClaim, and the most devices that it can get of each class: of all alternatives of a
// request the one with the most of a class, and as many as a claim can have if it asks for all devices.
func deviceClaimUsage(obj Object, _ time.Time) corev1.ResourceList {
	used := corev1.ResourceList{countDeviceClaims: number(1)}
	claim, ok := obj.(*resourcev1.ResourceClaim)
	if !ok {
		return used
	}
	add := func(class string, n int64) {
		name := corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
		before := used[name]
		sum := before.Value()
		if n > math.MaxInt64-sum {
			n = math.MaxInt64 - sum // no quota allows as many
		}
		used[name] = *resource.NewQuantity(sum+n, resource.DecimalSI)
	}
	for _, r := range claim.Spec.Devices.Requests {
		if e := r.Exactly; e != nil && len(r.FirstAvailable) == 0 {
			add(e.DeviceClassName, most(e.AllocationMode, e.Count))
		}
		byClass := map[string]int64{}
		for _, s := range r.FirstAvailable {
			byClass[s.DeviceClassName] = max(byClass[s.DeviceClassName], most(s.AllocationMode, s.Count))
		}
		for class, n := range byClass {
			add(class, n)
		}
	}
	return used
}

// most returns the largest number of devices that a request can get.
func most(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return max(count, 0)
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}
