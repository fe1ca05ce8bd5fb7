package rbac

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
)

// Options configures an [Authorizer].
type Options struct {
	// Policy is what holds; nil means that only administrators, and nodes by what they are, may do anything.
	Policy *Policy

	// Objects is where nodes' relations to pods are looked up. Without it nodes
	// have only the rights that do not depend on pods.
	Objects Lookup
}

// A Lookup reads stored objects, at the newest revision and from memory. An
// object that does not exist is a NotFound status error. The pods of a node
// (where spec.nodeName is its name) come from an index.
type Lookup interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error)
}

// An Authorizer decides requests. It is safe for concurrent use.
type Authorizer struct {
	policy *Policy
	nodes  nodes
}

// New returns an authorizer.
func New(opts Options) *Authorizer {
	if opts.Policy == nil {
		opts.Policy = NewPolicy(Objects{})
	}
	return &Authorizer{policy: opts.Policy, nodes: nodes{opts.Objects}}
}

// Authorize decides. What is not allowed by the policy, or to nodes by what they are, is
// refused. The group system:masters may do everything, as in Kubernetes, so that an administrator can
// restore a binding that was deleted by mistake. A refusal is turned into an answer by [Forbidden].
func (z *Authorizer) Authorize(ctx context.Context, a Attributes) Decision {
	if a.User == nil {
		return Decision{Reason: "the request has no user"}
	}
	if a.User.In(auth.GroupMasters) {
		return Decision{Allowed: true}
	}
	d := z.policy.Authorize(&a)
	if d.Allowed {
		return d
	}
	if node, ok := a.User.Node(); ok {
		return z.nodes.decide(ctx, node, &a)
	}
	if strings.HasPrefix(a.User.Name, "system:node:") {
		d.Reason = fmt.Sprintf("unknown node for user %q: it is not in the group %s", a.User.Name, auth.GroupNodes)
	}
	return d
}

// Forbidden returns the answer to a request that was refused, in the words of
// Kubernetes.
func Forbidden(a Attributes, d Decision) *apierrors.StatusError {
	// Names from the request must not look like HTML to a browser.
	text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(refusal(&a))
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New(text))
}

func refusal(a *Attributes) string {
	user := ""
	if a.User != nil {
		user = a.User.Name
	}
	if a.Resource == "" {
		return fmt.Sprintf("User %q cannot %s path %q", user, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", user, a.Verb, resource, a.Group, where)
}
