package admission

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sampan-io/sampan/apiserver/rbac"
)

// RoleEscalation refuses writes of roles and bindings that grant more than the user has, unless the user
// may escalate, or bind the role. Kubernetes does the same in the storage of these kinds.
type RoleEscalation struct {
	policy     *rbac.Policy
	authorizer *rbac.Authorizer
}

// NewRoleEscalation returns the plug-in. The authorizer is asked about the verbs escalate and bind.
func NewRoleEscalation(policy *rbac.Policy, authorizer *rbac.Authorizer) *RoleEscalation {
	return &RoleEscalation{policy, authorizer}
}

// Name implements [Plugin].
func (*RoleEscalation) Name() string { return "RoleEscalation" }

// Validate implements [Validator].
func (p *RoleEscalation) Validate(ctx context.Context, a *Attributes) error {
	if a.Kind.Group != rbacv1.GroupName || a.Object == nil {
		return nil
	}
	g := rbac.Grantor{
		Policy: p.policy, User: a.User,
		Allowed: func(q rbac.Attributes) bool { return p.authorizer.Authorize(ctx, q).Allowed },
	}
	if a.Operation == Update {
		g.Name = a.Name // in a creation it is not in the URL
	}
	switch obj := a.Object.(type) {
	case *rbacv1.ClusterRole:
		old, _ := a.Old.(*rbacv1.ClusterRole)
		return g.ClusterRole(ctx, obj, old)
	case *rbacv1.Role:
		old, _ := a.Old.(*rbacv1.Role)
		return g.Role(ctx, obj, old)
	case *rbacv1.ClusterRoleBinding:
		old, _ := a.Old.(*rbacv1.ClusterRoleBinding)
		return g.ClusterRoleBinding(ctx, obj, old)
	case *rbacv1.RoleBinding:
		old, _ := a.Old.(*rbacv1.RoleBinding)
		return g.RoleBinding(ctx, obj, old)
	}
	return nil
}
