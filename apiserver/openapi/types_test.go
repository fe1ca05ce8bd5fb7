package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/openapi"
)

var update = flag.Bool("update", false, "write the marks of upstream's schema to marks.txt")

// upstream returns the types of upstream's own schema, by name: client-go carries it.
func upstream(t *testing.T) map[string]smd.TypeDef {
	t.Helper()
	obj := &corev1.ConfigMap{}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	v, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(obj)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]smd.TypeDef{}
	for _, d := range v.Schema().Types {
		types[d.Name] = d
	}
	return types
}

// ours returns our types of all versions, by name.
func ours(t *testing.T) map[string]smd.TypeDef {
	t.Helper()
	types := map[string]smd.TypeDef{}
	c := apiservertest.Kinds(t)
	all := openapi.NewTypes(c)
	for _, k := range c.Kinds() {
		if k.Answered() {
			continue
		}
		typ := all.Of(k.GroupVersion(), k.New())
		if !typ.IsValid() {
			t.Errorf("%v has no type", k.GroupVersionKind)
		}
		for _, d := range typ.Schema.Types {
			types[d.Name] = d
		}
		for _, s := range k.Subresources {
			if b := s.Body(); b != nil && !all.Of(k.GroupVersion(), b.New()).IsValid() {
				t.Errorf("%s/%s has no type", k.Resource, s.Name)
			}
		}
	}
	return types
}

// TestTypesAreUpstreams compares every type, field by field, with upstream's: what a
// field is, how its list or map is merged, by which keys, and which values keys have that
// are left out.
func TestTypesAreUpstreams(t *testing.T) {
	theirs, have := upstream(t), ours(t)
	if *update {
		writeMarks(t, theirs, have)
		return
	}
	compared := 0
	for name, d := range have {
		_, known := theirs[name]
		if !known {
			// Models that cannot be applied, bodies of subresources, have no type there.
			if !slices.Contains([]string{"io.k8s.api.autoscaling.v1.Scale", "io.k8s.api.autoscaling.v1.ScaleSpec", "io.k8s.api.autoscaling.v1.ScaleStatus", "io.k8s.api.core.v1.NodeProxyOptions"}, name) &&
				!strings.HasPrefix(name, "io.k8s.api.authentication.") && !strings.HasPrefix(name, "io.k8s.api.core.v1.Binding") {
				t.Errorf("%s is no type of upstream", name)
			}
			continue
		}
		compared++
		keys := keyFields(theirs)[name]
		got, want := lines(d, keys), lines(theirs[name], keys)
		for _, line := range got {
			if !slices.Contains(want, line) {
				t.Errorf("%s: %s, which upstream's has not", name, line)
			}
		}
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("%s: upstream's has %s", name, line)
			}
		}
	}
	if compared < 200 {
		t.Errorf("only %d types were compared", compared)
	}
}

// lines writes a type down, a line for each field, with the defaults of the fields that
// are keys somewhere, which are the only ones that merging looks at.
func lines(d smd.TypeDef, keys []string) []string {
	if d.Map == nil || len(d.Fields) == 0 {
		return []string{atom(d.Atom)}
	}
	all := []string{"relation " + string(d.Map.ElementRelationship)}
	for _, f := range d.Fields {
		line := f.Name + ": " + ref(f.Type)
		if f.Default != nil && slices.Contains(keys, f.Name) {
			line += fmt.Sprintf(" default %v", f.Default)
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

func atom(a smd.Atom) string {
	var s []string
	if a.Scalar != nil {
		s = append(s, string(*a.Scalar))
	}
	if a.List != nil {
		s = append(s, fmt.Sprintf("list %s %q of %s", a.List.ElementRelationship, a.Keys, ref(a.List.ElementType)))
	}
	if a.Map != nil {
		s = append(s, fmt.Sprintf("map %s of %s, %d fields", a.Map.ElementRelationship, ref(a.Map.ElementType), len(a.Fields)))
	}
	return "(" + strings.Join(s, " or ") + ")"
}

func ref(r smd.TypeRef) string {
	s := atom(r.Inlined)
	if r.NamedType != nil {
		s = *r.NamedType
	}
	if r.ElementRelationship != nil {
		s += " as " + string(*r.ElementRelationship)
	}
	if r.Nullable {
		s += " or null"
	}
	return s
}

// keyFields returns, by type, the fields that are keys of lists.
func keyFields(types map[string]smd.TypeDef) map[string][]string {
	keys := map[string][]string{}
	for _, d := range types {
		if d.Map == nil {
			continue
		}
		for _, f := range d.Fields {
			if l := f.Type.Inlined.List; l != nil && l.ElementType.NamedType != nil {
				keys[*l.ElementType.NamedType] = append(keys[*l.ElementType.NamedType], l.Keys...)
			}
		}
	}
	return keys
}

// writeMarks makes marks.txt of upstream's schema, for our types.
func writeMarks(t *testing.T, theirs, have map[string]smd.TypeDef) {
	t.Helper()
	var lines []string
	add := func(model, field, relation string, words ...string) {
		at := model
		if field != "" {
			at += "/" + field
		}
		lines = append(lines, strings.Join(append([]string{at, relation}, words...), " "))
	}
	keys := keyFields(theirs)
	for name := range have {
		d := theirs[name]
		if d.Map == nil || strings.HasPrefix(name, "__") {
			continue
		}
		if d.Map.ElementRelationship == smd.Atomic {
			add(name, "", "atomic")
		}
		for _, f := range d.Fields {
			switch l, m := f.Type.Inlined.List, f.Type.Inlined.Map; {
			case l != nil && l.ElementRelationship == smd.Associative && len(l.Keys) > 0:
				add(name, f.Name, "map", l.Keys...)
			case l != nil && l.ElementRelationship == smd.Associative:
				add(name, f.Name, "set")
			case m != nil && m.ElementRelationship == smd.Atomic, f.Type.ElementRelationship != nil && *f.Type.ElementRelationship == smd.Atomic:
				add(name, f.Name, "atomic")
			case f.Type.ElementRelationship != nil, m != nil && m.ElementRelationship == smd.Separable:
				add(name, f.Name, "granular")
			case f.Type.NamedType != nil && *f.Type.NamedType == "__untyped_atomic_":
				add(name, f.Name, "opaque")
			}
			if f.Default != nil && slices.Contains(keys[name], f.Name) {
				b, err := json.Marshal(f.Default)
				if err != nil {
					t.Fatal(err)
				}
				add(name, f.Name, "default", string(b))
			}
		}
	}
	slices.Sort(lines)
	var out bytes.Buffer
	out.WriteString("# How lists and maps are merged: see marks.go. Made by: go test ./apiserver/openapi -run TestTypesAreUpstreams -update\n")
	for _, line := range slices.Compact(lines) {
		out.WriteString(line + "\n")
	}
	if err := os.WriteFile("marks.txt", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSchemasAreMadeWhenNeeded: the types of one version do not bring those of another.
func TestSchemasAreMadeWhenNeeded(t *testing.T) {
	types := openapi.NewTypes(apiservertest.Kinds(t))
	typ := types.Of(schema.GroupVersion{Version: "v1"}, &corev1.ConfigMap{})
	if _, found := typ.Schema.FindNamedType("io.k8s.api.apps.v1.Deployment"); found || !typ.IsValid() {
		t.Error("core/v1 has Deployments")
	}
	again := types.Of(schema.GroupVersion{Version: "v1"}, &corev1.Pod{})
	if again.Schema != typ.Schema {
		t.Error("two types of one version are of two schemas and can't be compared")
	}
}
