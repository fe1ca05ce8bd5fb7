package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

// Kinds returns the kinds of rbac.authorization.k8s.io.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{roles(), roleBindings(), clusterRoles(), clusterRoleBindings()}
}

func roles() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("Role"),
		Resource:         "roles",
		CreatedByUpdate:  true,
		Singular:         "role",
		Namespaced:       true,
		New:              func() catalog.Object { return &rbacv1.Role{} },
		NewList:          func() runtime.Object { return &rbacv1.RoleList{} },
		Validate:         declared.With(catalog.Validate(ValidateRole), ""),
		ValidateName:     ValidateName,
		Columns:          []catalog.Column{catalog.Created()},
	}
}

func clusterRoles() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
		Resource:         "clusterroles",
		CreatedByUpdate:  true,
		Singular:         "clusterrole",
		New:              func() catalog.Object { return &rbacv1.ClusterRole{} },
		NewList:          func() runtime.Object { return &rbacv1.ClusterRoleList{} },
		Validate:         declared.With(catalog.Validate(ValidateClusterRole), ""),
		ValidateName:     ValidateName,
		Columns:          []catalog.Column{catalog.Created()},
	}
}

func roleBindings() *catalog.Kind {
	doc := rbacv1.RoleBinding{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		Resource:         "rolebindings",
		CreatedByUpdate:  true,
		Singular:         "rolebinding",
		Namespaced:       true,
		New:              func() catalog.Object { return &rbacv1.RoleBinding{} },
		NewList:          func() runtime.Object { return &rbacv1.RoleBindingList{} },
		Default:          catalog.Default(DefaultRoleBinding),
		Validate:         declared.With(catalog.Validate(ValidateRoleBinding), ""),
		ValidateName:     ValidateName,
		Columns: bindingColumns(doc["roleRef"], "roleBinding", func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
			return b.RoleRef, b.Subjects
		}),
	}
}

func clusterRoleBindings() *catalog.Kind {
	doc := rbacv1.ClusterRoleBinding{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
		Resource:         "clusterrolebindings",
		CreatedByUpdate:  true,
		Singular:         "clusterrolebinding",
		New:              func() catalog.Object { return &rbacv1.ClusterRoleBinding{} },
		NewList:          func() runtime.Object { return &rbacv1.ClusterRoleBindingList{} },
		Default:          catalog.Default(DefaultClusterRoleBinding),
		Validate:         declared.With(catalog.Validate(ValidateClusterRoleBinding), ""),
		ValidateName:     ValidateName,
		Columns: bindingColumns(doc["roleRef"], "clusterRoleBinding", func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
			return b.RoleRef, b.Subjects
		}),
	}
}

// bindingColumns returns the columns of bindings. Parts returns a binding's role and subjects.
func bindingColumns[T catalog.Object](doc, kind string, parts func(T) (rbacv1.RoleRef, []rbacv1.Subject)) []catalog.Column {
	// of shows the subjects of a kind.
	of := func(name, subjectKind string) catalog.Column {
		return catalog.Text(name, name+" in the "+kind, func(b T) string {
			_, subjects := parts(b)
			return names(subjects, subjectKind)
		}).Wide()
	}
	return []catalog.Column{
		catalog.Text("Role", doc, func(b T) string {
			ref, _ := parts(b)
			return ref.Kind + "/" + ref.Name
		}),
		catalog.Age(),
		of("Users", rbacv1.UserKind), of("Groups", rbacv1.GroupKind), of("ServiceAccounts", rbacv1.ServiceAccountKind),
	}
}

// names returns the names of the subjects of a kind.
func names(subjects []rbacv1.Subject, kind string) string {
	var all []string
	for _, s := range subjects {
		switch {
		case s.Kind != kind:
		case kind == rbacv1.ServiceAccountKind:
			all = append(all, s.Namespace+"/"+s.Name)
		default:
			all = append(all, s.Name)
		}
	}
	return strings.Join(all, ", ")
}
