package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// A Website is a page that is served by a number of pods. config/websites.yaml is its definition.
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WebsiteSpec   `json:"spec"`
	Status            WebsiteStatus `json:"status,omitempty"`
}

// WebsiteSpec has the choices of the user of a Website.
type WebsiteSpec struct {
	Page     string `json:"page"`               // HTML
	Image    string `json:"image,omitempty"`    // of the web server; empty means the one in the ConfigMap [settingsName]
	Replicas *int32 `json:"replicas,omitempty"` // at least 0; the API server sets 1 if there is none
}

// WebsiteStatus is written by the reconciler.
type WebsiteStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"` // of the type Available
}

// WebsiteList is the response to a list request.
type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Website `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (w *Website) DeepCopyObject() runtime.Object { return w.deepCopy() }

func (w *Website) deepCopy() *Website {
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if w.Spec.Replicas != nil {
		out.Spec.Replicas = new(*w.Spec.Replicas)
	}
	out.Status.Conditions = nil
	for _, c := range w.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *c.DeepCopy())
	}
	return &out
}

// DeepCopyObject implements [runtime.Object].
func (l *WebsiteList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].deepCopy())
	}
	return &out
}

// newScheme returns the types that the controller reads and writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(groupVersion, &Website{}, &WebsiteList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return scheme, nil
}
