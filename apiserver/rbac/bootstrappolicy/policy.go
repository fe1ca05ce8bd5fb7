package bootstrappolicy

import (
	_ "embed" // the objects
	"encoding/json"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/rbac"
)

//go:embed upstream.json
var upstream []byte

//go:embed sampan.yaml
var sampan []byte

// Upstream returns the objects of Kubernetes, as its API server would create them. They are the
// caller's.
func Upstream() rbac.Objects { return parse(upstream, json.Unmarshal) }

// Sampan returns the objects for components that do what no component of Kubernetes does, or that
// run as other users there. They are the caller's.
func Sampan() rbac.Objects {
	return parse(sampan, func(data []byte, into any) error { return yaml.UnmarshalStrict(data, into) })
}

// All returns the objects of Kubernetes, then those of Sampan.
func All() rbac.Objects {
	o, more := Upstream(), Sampan()
	o.ClusterRoles = append(o.ClusterRoles, more.ClusterRoles...)
	o.ClusterRoleBindings = append(o.ClusterRoleBindings, more.ClusterRoleBindings...)
	o.Roles = append(o.Roles, more.Roles...)
	o.RoleBindings = append(o.RoleBindings, more.RoleBindings...)
	return o
}

// parse reads objects and adds fields that the files omit.
func parse(data []byte, unmarshal func([]byte, any) error) (o rbac.Objects) {
	if err := unmarshal(data, &o); err != nil {
		panic(fmt.Sprintf("bootstrappolicy: an embedded file is damaged: %v", err))
	}
	for i := range o.ClusterRoles {
		complete(&o.ClusterRoles[i].ObjectMeta, nil, nil)
	}
	for i := range o.Roles {
		complete(&o.Roles[i].ObjectMeta, nil, nil)
	}
	for i := range o.ClusterRoleBindings {
		b := &o.ClusterRoleBindings[i]
		complete(&b.ObjectMeta, &b.RoleRef, b.Subjects)
	}
	for i := range o.RoleBindings {
		b := &o.RoleBindings[i]
		complete(&b.ObjectMeta, &b.RoleRef, b.Subjects)
	}
	return o
}

func complete(meta *metav1.ObjectMeta, ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	meta.Labels["kubernetes.io/bootstrapping"] = "rbac-defaults"
	meta.Annotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}
	if ref != nil {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if subjects[i].Kind != rbacv1.ServiceAccountKind {
			subjects[i].APIGroup = rbacv1.GroupName
		}
	}
}
