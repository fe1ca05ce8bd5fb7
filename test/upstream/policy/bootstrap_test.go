package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
)

var update = flag.Bool("update", false, "write apiserver/rbac/bootstrappolicy/upstream.json")

const file = "../../../apiserver/rbac/bootstrappolicy/upstream.json"

// theirs returns upstream's objects, each kind in the order of namespaces and names.
func theirs() (o rbac.Objects) {
	o.ClusterRoles = slices.Concat(upstream.ClusterRoles(), upstream.ControllerRoles())
	o.ClusterRoleBindings = slices.Concat(upstream.ClusterRoleBindings(), upstream.ControllerRoleBindings())
	for _, roles := range upstream.NamespaceRoles() {
		o.Roles = append(o.Roles, roles...)
	}
	for _, bindings := range upstream.NamespaceRoleBindings() {
		o.RoleBindings = append(o.RoleBindings, bindings...)
	}
	order := func(a, b metav1.ObjectMeta) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}
	slices.SortFunc(o.ClusterRoles, func(a, b rbacv1.ClusterRole) int { return order(a.ObjectMeta, b.ObjectMeta) })
	slices.SortFunc(o.ClusterRoleBindings, func(a, b rbacv1.ClusterRoleBinding) int { return order(a.ObjectMeta, b.ObjectMeta) })
	slices.SortFunc(o.Roles, func(a, b rbacv1.Role) int { return order(a.ObjectMeta, b.ObjectMeta) })
	slices.SortFunc(o.RoleBindings, func(a, b rbacv1.RoleBinding) int { return order(a.ObjectMeta, b.ObjectMeta) })
	return o
}

// TestBootstrapPolicy compares each object with upstream's. With -update it first writes our file.
func TestBootstrapPolicy(t *testing.T) {
	want := theirs()
	if len(want.ClusterRoles) < 60 || len(want.Roles) < 5 {
		t.Fatalf("upstream has %d cluster roles and %d roles", len(want.ClusterRoles), len(want.Roles))
	}
	text := write(want)
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return // The objects of the previous file are compiled into this test.
	}
	if diff := gocmp.Diff(want, bootstrappolicy.Upstream()); diff != "" {
		t.Errorf("our objects (+) are not upstream's (-): go test -run TestBootstrapPolicy . -update\n%s", diff)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, text) {
		t.Errorf("upstream.json is not as generated (%v): go test -run TestBootstrapPolicy . -update", err)
	}
}

// write returns objects in JSON with a line for each rule and subject, without what
// bootstrappolicy adds to all of them.
func write(o rbac.Objects) []byte {
	var kinds []string
	add := func(name string, objects []string) {
		kinds = append(kinds, fmt.Sprintf("%q: %s", name, list(objects, "\n")))
	}
	var lines []string
	for _, r := range o.ClusterRoles {
		fields := []string{meta(r.ObjectMeta)}
		if r.AggregationRule != nil {
			fields = append(fields, `"aggregationRule": `+text(r.AggregationRule))
		}
		lines = append(lines, fieldsOf(append(fields, each("rules", r.Rules)...)))
	}
	add("clusterRoles", lines)
	lines = nil
	for _, b := range o.ClusterRoleBindings {
		lines = append(lines, fieldsOf(append([]string{meta(b.ObjectMeta)}, binding(b.RoleRef, b.Subjects)...)))
	}
	add("clusterRoleBindings", lines)
	lines = nil
	for _, r := range o.Roles {
		lines = append(lines, fieldsOf(append([]string{meta(r.ObjectMeta)}, each("rules", r.Rules)...)))
	}
	add("roles", lines)
	lines = nil
	for _, b := range o.RoleBindings {
		lines = append(lines, fieldsOf(append([]string{meta(b.ObjectMeta)}, binding(b.RoleRef, b.Subjects)...)))
	}
	add("roleBindings", lines)
	return []byte("{" + strings.Join(kinds, ",\n") + "}\n")
}

func fieldsOf(fields []string) string { return "{" + strings.Join(fields, ", ") + "}" }

func meta(m metav1.ObjectMeta) string {
	m = *m.DeepCopy()
	delete(m.Labels, "kubernetes.io/bootstrapping")
	delete(m.Annotations, rbacv1.AutoUpdateAnnotationKey)
	return `"metadata": ` + text(m)
}

func binding(ref rbacv1.RoleRef, subjects []rbacv1.Subject) []string {
	subjects = slices.Clone(subjects)
	for i := range subjects {
		subjects[i].APIGroup = ""
	}
	role := fmt.Sprintf(`"roleRef": {"kind": %q, "name": %q}`, ref.Kind, ref.Name)
	return append([]string{role}, each("subjects", subjects)...)
}

// each returns a field with a list, or nothing for an empty list.
func each[T any](name string, items []T) (fields []string) {
	for _, x := range items {
		fields = append(fields, text(x))
	}
	if len(fields) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%q: %s", name, list(fields, "\n  "))}
}

func list(items []string, newline string) string {
	return "[" + newline + strings.Join(items, ","+newline) + "]"
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
