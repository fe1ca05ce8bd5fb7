package usage

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A use is the CPU and memory of a node or a container.
type use struct {
	at     time.Time
	window time.Duration // over which CPU is averaged
	cpu    float64       // cores
	memory float64       // bytes
}

// rate returns the use between two points, of which the earlier one may be nil. It returns false if nothing can be said.
func rate(before *point, now point) (use, bool) {
	u := use{at: now.at, memory: now.memory}
	since, used := now.started, now.cpu
	if before != nil && !before.at.IsZero() && before.cpu <= now.cpu && before.started.Equal(now.started) {
		since, used = before.at, now.cpu-before.cpu
	}
	if now.at.IsZero() || since.IsZero() {
		return u, false
	}
	u.window = now.at.Sub(since)
	if u.window < shortest {
		return u, false
	}
	u.cpu = used / u.window.Seconds()
	return u, true
}

// resources returns the use in the units of metrics-server.
func (u use) resources() corev1.ResourceList {
	cpu := resource.NewScaledQuantity(int64(math.Ceil(min(u.cpu, maxCores)*1e9)), resource.Nano)
	return corev1.ResourceList{
		corev1.ResourceCPU:    *cpu,
		corev1.ResourceMemory: *resource.NewQuantity(int64(min(u.memory, maxBytes)), resource.BinarySI),
	}
}

// Bounds to which the numbers of a broken node are cut.
const (
	maxCores = 1e9
	maxBytes = 1 << 60
)
