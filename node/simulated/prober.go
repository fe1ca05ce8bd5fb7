package simulated

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Prober is a prober that finds every container well.
type Prober struct{}

// Probe returns nil.
func (Prober) Probe(context.Context, *corev1.Probe, *corev1.Container, string, string) error {
	return nil
}
