package session

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

// Listed returns the errors that one joins.
func Listed(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Present returns the objects that an input means, as they are now.
func (s *Session) Present(ctx context.Context, i resource.Info) ([]client.Object, error) {
	if !i.Selection {
		o, err := s.Get(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, "")
		if err != nil {
			return nil, err
		}
		return []client.Object{o.(client.Object)}, nil // every object of the API has metadata
	}
	list, _, err := s.List(ctx, i.Mapping.GroupVersionResource, i.Namespace, metav1.ListOptions{LabelSelector: i.Labels, FieldSelector: i.Fields})
	objs := make([]client.Object, len(list))
	for n, o := range list {
		objs[n] = o.(client.Object) // every object of the API has metadata
	}
	return objs, err
}
