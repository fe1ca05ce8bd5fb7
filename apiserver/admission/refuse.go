package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refuse returns a Forbidden error about the object that a is about.
func refuse(a *Attributes, format string, args ...any) *apierrors.StatusError {
	name := a.Name
	if name == "" && a.Object != nil {
		if name = a.Object.GetName(); name == "" {
			name = a.Object.GetGenerateName()
		}
	}
	return apierrors.NewForbidden(a.Kind.GR(), name, fmt.Errorf(format, args...))
}

// warn adds a sentence for the client.
func (a *Attributes) warn(format string, args ...any) {
	a.Warnings = append(a.Warnings, fmt.Sprintf(format, args...))
}

func core(resource string) schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource(resource)
}

// is reports whether a is about this resource of the core group.
func (a *Attributes) is(resource, subresource string) bool {
	return a.Kind.Group == "" && a.Kind.Resource == resource && a.Subresource == subresource
}

// writtenPod returns the pod that a creates or updates, or nil if it does something else.
func (a *Attributes) writtenPod() *corev1.Pod {
	if a.Operation != Create && a.Operation != Update || !a.is("pods", "") {
		return nil
	}
	pod, _ := a.Object.(*corev1.Pod)
	return pod
}

// createdPod returns the pod that a creates, or nil if it does something else.
func (a *Attributes) createdPod() *corev1.Pod {
	if a.Operation != Create || !a.is("pods", "") {
		return nil
	}
	pod, _ := a.Object.(*corev1.Pod)
	return pod
}
