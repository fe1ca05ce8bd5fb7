package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Right is the permission for a verb on a resource.
type Right struct {
	Verb string
	schema.GroupResource
	Subresource     string
	Namespace, Name string // empty means all
}

// Rights returns the rights for several verbs on a resource in all namespaces.
func Rights(r schema.GroupResource, verbs ...string) []Right {
	var all []Right
	for _, verb := range verbs {
		all = append(all, Right{Verb: verb, GroupResource: r})
	}
	return all
}

// May asks the server whether the client's user has a right (a SelfSubjectAccessReview).
func May(ctx context.Context, c Interface, r Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name,
		},
	}}
	gvr := authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")
	obj, err := c.Create(ctx, gvr, "", "", review, metav1.CreateOptions{}, "")
	if err != nil {
		return false, err
	}
	answer, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return false, fmt.Errorf("client: the server answers a review with a %T", obj)
	}
	return answer.Status.Allowed, nil
}

// DescribeRights prints rights on one line, the verbs on a resource together:
// "list and watch pods; create pods/binding".
func DescribeRights(rights []Right) string {
	type target struct{ resource, where string }
	verbs := map[target][]string{}
	var order []target
	for _, r := range rights {
		t := target{resource: r.String()}
		if r.Subresource != "" {
			t.resource += "/" + r.Subresource
		}
		if r.Namespace != "" {
			t.where = " in namespace " + r.Namespace
		}
		if !slices.Contains(order, t) {
			order = append(order, t)
		}
		verbs[t] = append(verbs[t], r.Verb)
	}
	var texts []string
	for _, t := range order {
		v := verbs[t]
		text := v[len(v)-1]
		if len(v) > 1 {
			text = strings.Join(v[:len(v)-1], ", ") + " and " + text
		}
		texts = append(texts, text+" "+t.resource+t.where)
	}
	return strings.Join(texts, "; ")
}
