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
// creation has a guard on its namespace, so that none can come after the deletion of the namespace
// has begun: the namespace controller finds every object that will ever be there.
type NamespaceLifecycle struct{ reader Reader }

// NewNamespaceLifecycle returns the plug-in.
func NewNamespaceLifecycle(r Reader) *NamespaceLifecycle { return &NamespaceLifecycle{reader: r} }

// Name implements [Plugin].
func (*NamespaceLifecycle) Name() string { return "NamespaceLifecycle" }

// Admit implements [Mutator].
func (p *NamespaceLifecycle) Admit(ctx context.Context, a *Attributes) error {
	if a.Round > 0 {
		return nil // it has no answer but the first
	}
	if a.is("namespaces", "") {
		immortal := []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
		if a.Operation == Delete && slices.Contains(immortal, a.Name) {
			return refuse(a, "this namespace may not be deleted")
		}
		return nil
	}
	if !a.Kind.Namespaced || a.Operation != Create || a.Subresource != "" {
		return nil
	}
	guard, err := p.Look(ctx, a)
	if err == nil {
		a.Guards = append(a.Guards, guard)
	}
	return err
}

// Look implements [Looker].
func (p *NamespaceLifecycle) Look(ctx context.Context, a *Attributes) (Guard, error) {
	o, err := p.reader.Get(ctx, core("namespaces"), "", a.Namespace)
	if err != nil {
		return Guard{}, err
	}
	ns, ok := o.(*corev1.Namespace)
	if !ok {
		return Guard{}, apierrors.NewInternalError(fmt.Errorf("namespaces/%s is a %T", a.Namespace, o))
	}
	if ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceTerminating {
		revision, err := revisionOf(ns)
		return Guard{Resource: core("namespaces"), Name: a.Namespace, Revision: revision, By: p}, err
	}
	refusal := refuse(a, "unable to create new content in namespace %s because it is being terminated", a.Namespace)
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
		Field:   "metadata.namespace",
	})
	return Guard{}, refusal
}
