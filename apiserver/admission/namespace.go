package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceLifecycle refuses to make objects in namespaces that do not exist or
// are being deleted, and to delete the namespaces that a cluster cannot do without. A
// creation that it lets through ends before the deletion of its namespace begins.
type NamespaceLifecycle struct {
	reader Reader
	gates  gates
}

// NewNamespaceLifecycle returns the plug-in.
func NewNamespaceLifecycle(r Reader) *NamespaceLifecycle { return &NamespaceLifecycle{reader: r} }

// Name implements [Plugin].
func (*NamespaceLifecycle) Name() string { return "NamespaceLifecycle" }

// Admit implements [Mutator].
func (p *NamespaceLifecycle) Admit(ctx context.Context, a *Attributes) error {
	if a.is("namespaces", "") {
		immortal := []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
		if a.Operation != Delete || a.Round > 0 {
			return nil
		}
		if slices.Contains(immortal, a.Name) {
			return refuse(a, "this namespace may not be deleted")
		}
		return a.through(ctx, a.Name, p.gates.remove)
	}
	if !a.Kind.Namespaced || a.Operation != Create || a.Subresource != "" || a.Round > 0 {
		return nil // in a later round the write is through the gate already
	}
	if err := a.through(ctx, a.Namespace, p.gates.create); err != nil {
		return err
	}
	o, err := p.reader.Get(ctx, core("namespaces"), "", a.Namespace)
	if err != nil {
		return err
	}
	ns, ok := o.(*corev1.Namespace)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("namespaces/%s is a %T", a.Namespace, o))
	}
	if ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	refusal := refuse(a, "unable to create new content in namespace %s because it is being terminated", a.Namespace)
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
		Field:   "metadata.namespace",
	})
	return refusal
}

// through enters a gate and leaves it once the fate of the write is known. What writes
// nothing does not go through.
func (a *Attributes) through(ctx context.Context, namespace string, enter func(context.Context, string) (func(), error)) error {
	if a.DryRun {
		return nil
	}
	leave, err := enter(ctx, namespace)
	if err == nil {
		a.Done = append(a.Done, func(bool) { leave() })
	}
	return err
}
