package simulation

import (
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Usage is what each container of a pod uses while it runs. The zero Usage is nothing.
type Usage struct {
	CPU    int64 // thousandths of a core
	Memory int64 // bytes
}

// A part is one of the resources of a [Usage].
type part struct {
	value *int64
	read  func(*resource.Quantity) int64
}

func (u *Usage) part(name corev1.ResourceName) (part, error) {
	switch name {
	case corev1.ResourceCPU:
		return part{&u.CPU, (*resource.Quantity).MilliValue}, nil
	case corev1.ResourceMemory:
		return part{&u.Memory, (*resource.Quantity).Value}, nil
	}
	return part{}, errors.New("want cpu or memory")
}

// set reads a quantity.
func (p part) set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 || q.CmpInt64(math.MaxInt64/1000) > 0 {
		return errors.New("want a quantity such as 250m or 64Mi that is not negative")
	}
	*p.value = p.read(&q)
	return nil
}

// UsageOf returns the usage that the annotations of a pod declare, as quantities. The error names the annotation that is not
// one.
func UsageOf(annotations map[string]string) (Usage, error) { return Usage{}.annotated(annotations) }

// annotated returns the usage with what the annotations of a pod declare of it.
func (u Usage) annotated(annotations map[string]string) (Usage, error) {
	for name, annotation := range map[corev1.ResourceName]string{corev1.ResourceCPU: CPUAnnotation, corev1.ResourceMemory: MemoryAnnotation} {
		text, declared := annotations[annotation]
		if !declared {
			continue
		}
		p, err := u.part(name)
		if err == nil {
			err = p.set(text)
		}
		if err != nil {
			return Usage{}, fmt.Errorf("annotation %s: %q: %w", annotation, text, err)
		}
	}
	return u, nil
}

// Nanoseconds returns the CPU time that a container has used after it has run for some time.
func (u Usage) Nanoseconds(run time.Duration) uint64 {
	return uint64(max(run.Seconds(), 0) * float64(u.CPU) * 1e6)
}
