package admission

import "context"

// RuntimeClass refuses pods that ask for a RuntimeClass, or for the overhead that only a RuntimeClass gives: the kind
// is not served, so that there is none.
type RuntimeClass struct{}

// Name implements [Plugin].
func (RuntimeClass) Name() string { return "RuntimeClass" }

// Admit implements [Plugin].
func (RuntimeClass) Admit(_ context.Context, a *Attributes) error {
	pod := a.createdPod()
	switch {
	case pod == nil:
	case pod.Spec.RuntimeClassName != nil:
		return refuse(a, "pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName)
	case len(pod.Spec.Overhead) > 0:
		return refuse(a, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	}
	return nil
}
