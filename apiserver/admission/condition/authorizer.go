package condition

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

var errNoNamespace = errors.New("a stored namespace is of another kind")

// An Authorizer decides what a user may do.
type Authorizer interface {
	Authorize(ctx context.Context, a rbac.Attributes) rbac.Decision
}

// userInfo returns the user of the request as the library of CEL wants it.
func (r *Request) userInfo() user.Info {
	if r.user == nil {
		u := &user.DefaultInfo{}
		if of := r.attributes.User; of != nil {
			*u = user.DefaultInfo{Name: of.Name, UID: of.UID, Groups: of.Groups, Extra: of.Extra}
		}
		r.user = u
	}
	return r.user
}

// authorizerFor answers the checks of expressions.
type authorizerFor struct{ Authorizer }

// Authorize implements the interface of the library.
func (z authorizerFor) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	q := rbac.Attributes{Verb: a.GetVerb()}
	if u := a.GetUser(); u != nil {
		q.User = &auth.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
	}
	if a.IsResourceRequest() {
		q.Group, q.Version, q.Resource, q.Subresource = a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource()
		q.Namespace, q.Name, q.Fields = a.GetNamespace(), a.GetName(), fieldsOf(a)
	} else {
		q.Path = a.GetPath()
	}
	d := z.Authorizer.Authorize(ctx, q)
	if d.Allowed {
		return authorizer.DecisionAllow, d.Reason, nil
	}
	return authorizer.DecisionNoOpinion, d.Reason, nil
}

// fieldsOf returns the field selector of a check. One that cannot be expressed is left out: without it the check is
// for more, so nothing is allowed because of that.
func fieldsOf(a authorizer.Attributes) fields.Selector {
	requirements, err := a.GetFieldSelector()
	if err != nil || len(requirements) == 0 {
		return nil
	}
	var terms []fields.Selector
	for _, r := range requirements {
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals:
			terms = append(terms, fields.OneTermEqualSelector(r.Field, r.Value))
		case selection.NotEquals:
			terms = append(terms, fields.OneTermNotEqualSelector(r.Field, r.Value))
		default:
		}
	}
	return fields.AndSelectors(terms...)
}
