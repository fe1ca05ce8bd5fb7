package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/applyconfiguration"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/scheme"
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
	service := &registrationv1.APIService{}
	service.SetGroupVersionKind(registrationv1.SchemeGroupVersion.WithKind("APIService"))
	if v, err = aggregator.NewTypeConverter(aggregatorscheme.Scheme).ObjectToTyped(service); err != nil {
		t.Fatal(err)
	}
	for _, d := range v.Schema().Types {
		if _, known := types[d.Name]; !known {
			types[d.Name] = d
		}
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
		typ := all.Of(k, k.New())
		if !typ.IsValid() {
			t.Errorf("%v has no type", k.GroupVersionKind)
		}
		for _, d := range typ.Schema.Types {
			types[d.Name] = d
		}
		for _, s := range k.Subresources {
			if b := s.Body(); b != nil && !all.Of(k, b.New()).IsValid() {
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
			if !slices.Contains([]string{"io.k8s.api.autoscaling.v1.Scale", "io.k8s.api.autoscaling.v1.ScaleSpec", "io.k8s.api.autoscaling.v1.ScaleStatus", "io.k8s.api.core.v1.NodeProxyOptions", "io.k8s.api.core.v1.PodProxyOptions", "io.k8s.api.core.v1.PodExecOptions", "io.k8s.api.core.v1.PodAttachOptions", "io.k8s.api.core.v1.PodPortForwardOptions", "io.k8s.api.core.v1.ServiceProxyOptions"}, name) &&
				!strings.HasPrefix(name, "io.k8s.api.authentication.") && !strings.HasPrefix(name, "io.k8s.apiextensions-apiserver.") && !strings.HasPrefix(name, "io.k8s.api.core.v1.Binding") {
				t.Errorf("upstream has no type %s", name)
			}
			continue
		}
		compared++
		got, want := lines(d), lines(theirs[name])
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

// lines writes a type down, a line for each field, with the default of the field.
func lines(d smd.TypeDef) []string {
	if d.Map == nil || len(d.Fields) == 0 {
		return []string{atom(d.Atom)}
	}
	all := []string{"relation " + string(d.Map.ElementRelationship)}
	for _, f := range d.Fields {
		line := f.Name + ": " + ref(f.Type)
		if f.Default != nil {
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
	tags := readTags(t, have)
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
			if tags.Defaults[name+"/"+f.Name] {
				b, err := json.Marshal(f.Default)
				if err != nil {
					t.Fatal(err)
				}
				add(name, f.Name, "default", string(b))
			}
		}
	}
	for name, keys := range tags.Keys {
		// Upstream has no schema for clients of definitions.
		if model, field, _ := strings.Cut(name, "/"); strings.HasPrefix(name, definitionModels) && have[model].Map != nil {
			add(model, field, "map", keys...)
		}
	}
	for name, required := range tags.Required {
		model, field, _ := strings.Cut(name, "/")
		if !required {
			add(model, field, "optional")
		} else {
			add(model, field, "required")
		}
	}
	for name, values := range tags.Enums {
		b, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		add(name, "", "enum", string(b))
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

// tags are those in the comments of upstream's types.
type tags struct {
	Enums    map[string][]string // the values of types with the tag +enum, sorted, by model
	Defaults map[string]bool     // MODEL/FIELD with the tag +default
	Required map[string]bool     // the same whose tag +required or +optional contradicts its JSON tag
	Keys     map[string][]string // the same with tags +listMapKey
}

// readTags reads the tags of all types of the API that are in the packages of our types.
func readTags(t *testing.T, have map[string]smd.TypeDef) tags {
	t.Helper()
	packages := map[string]bool{}
	for name := range have {
		packages[name[:strings.LastIndex(name, ".")+1]] = true
	}
	all := tags{map[string][]string{}, map[string]bool{}, map[string]bool{}, map[string][]string{}}
	for module, pattern := range map[string]string{
		"k8s.io/api": "/*/v*/types.go", "k8s.io/apimachinery": "/pkg/apis/meta/v1/types.go",
		"k8s.io/apiextensions-apiserver": "/pkg/apis/apiextensions/v1/types*.go",
	} {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatal(err)
		}
		root := strings.TrimSpace(string(dir))
		files, err := filepath.Glob(root + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s%s: %v, %v", root, pattern, files, err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			pkg := strings.NewReplacer("k8s.io", "io.k8s", "/", ".").Replace(module+strings.TrimPrefix(filepath.Dir(file), root)) + "."
			if packages[pkg] {
				all.read(parsed, pkg)
			}
		}
	}
	return all
}

// read adds the tags in a file, whose models begin with prefix.
func (all tags) read(file *ast.File, prefix string) {
	enums := map[string][]string{}
	var embeds [][2]string // the prefixes of the fields of a struct, and of one that it embeds
	for g := range declarations(file, token.TYPE) {
		for _, spec := range g.Specs {
			s := spec.(*ast.TypeSpec)
			if tagged(g.Doc, "+enum") {
				enums[s.Name.Name] = nil
			}
			fields, ok := s.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range fields.Fields.List {
				if of, ok := f.Type.(*ast.Ident); ok && f.Names == nil {
					embeds = append(embeds, [2]string{prefix + s.Name.Name + "/", prefix + of.Name + "/"})
				}
				if f.Tag == nil {
					continue
				}
				name, options, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
				name = prefix + s.Name.Name + "/" + name
				if tagged(f.Doc, "+default=") {
					all.Defaults[name] = true
				}
				switch omitted := strings.Contains(options, "omit"); {
				case tagged(f.Doc, "+required") && omitted:
					all.Required[name] = true
				case tagged(f.Doc, "+optional") && !omitted:
					all.Required[name] = false
				}
				if keys := values(f.Doc, "+listMapKey="); len(keys) > 0 {
					all.Keys[name] = keys
				}
			}
		}
	}
	for _, e := range embeds {
		for field := range maps.Clone(all.Defaults) {
			if name, ok := strings.CutPrefix(field, e[1]); ok {
				all.Defaults[e[0]+name] = true
			}
		}
	}
	for g := range declarations(file, token.CONST) {
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			if len(v.Values) != 1 {
				continue
			}
			of, _ := v.Type.(*ast.Ident)
			value := v.Values[0]
			if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 { // a conversion
				of, _ = call.Fun.(*ast.Ident)
				value = call.Args[0]
			}
			if of == nil {
				continue
			}
			text, ok := "", false
			switch value := value.(type) {
			case *ast.BasicLit:
				quoted, err := strconv.Unquote(value.Value)
				text, ok = quoted, err == nil
			case *ast.SelectorExpr:
				text, ok = families[value.Sel.Name]
			}
			if _, known := enums[of.Name]; known && ok && !slices.Contains(enums[of.Name], text) {
				enums[of.Name] = append(enums[of.Name], text)
			}
		}
	}
	for name, values := range enums {
		if len(values) > 0 { // none: the name of another type
			all.Enums[prefix+name] = slices.Sorted(slices.Values(values))
		}
	}
}

// declarations iterates over the declarations of one sort in a file.
func declarations(file *ast.File, sort token.Token) iter.Seq[*ast.GenDecl] {
	return func(yield func(*ast.GenDecl) bool) {
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == sort && !yield(g) {
				return
			}
		}
	}
}

// families are the constants of other packages by which enumerations are defined.
var families = map[string]string{"IPv4Protocol": string(corev1.IPv4Protocol), "IPv6Protocol": string(corev1.IPv6Protocol)}

// values returns what follows a tag in the lines of a comment.
func values(doc *ast.CommentGroup, tag string) (all []string) {
	if doc == nil {
		return nil
	}
	for _, c := range doc.List {
		if value, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(c.Text, "//")), tag); ok {
			all = append(all, value)
		}
	}
	return all
}

// tagged reports whether a line of a comment begins with a tag.
func tagged(doc *ast.CommentGroup, tag string) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(c.Text, "//")), tag)
	})
}

// definitionModels is how the names of the models of definitions begin.
const definitionModels = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

// TestListsOfDefinitionsAreUpstreams compares the keys of lists in definitions with the tags in upstream's types: two managers can have
// a condition each.
func TestListsOfDefinitionsAreUpstreams(t *testing.T) {
	if *update {
		t.Skip("the marks have just been written")
	}
	have := ours(t)
	found := 0
	for name, keys := range readTags(t, have).Keys {
		model, field, _ := strings.Cut(name, "/")
		d, ok := have[model]
		if !strings.HasPrefix(name, definitionModels) || !ok {
			continue
		}
		found++
		f, ok := d.FindField(field)
		if !ok || f.Type.Inlined.List == nil || f.Type.Inlined.List.ElementRelationship != smd.Associative || !slices.Equal(f.Type.Inlined.List.Keys, keys) {
			t.Errorf("%s is %s, want a list with the keys %q", name, ref(f.Type), keys)
		}
	}
	if found < 2 {
		t.Errorf("%d lists with keys are there, want 2 at least", found)
	}
}

// TestEnumerationsAreUpstreams compares the values of enumerated fields with the tags in upstream's
// types.
func TestEnumerationsAreUpstreams(t *testing.T) {
	if *update {
		t.Skip("the marks have just been written")
	}
	want := readTags(t, ours(t)).Enums
	if values := want["io.k8s.api.core.v1.PullPolicy"]; !slices.Equal(values, []string{"Always", "IfNotPresent", "Never"}) {
		t.Fatalf("PullPolicy has the values %q", values)
	}
	got := openapi.Enumerations()
	for name, values := range want {
		if !slices.Equal(got[name], values) {
			t.Errorf("%s has the values %q, want %q", name, got[name], values)
		}
	}
	for name := range got {
		if want[name] == nil {
			t.Errorf("upstream has no enumeration %s", name)
		}
	}
}

// TestSchemasAreMadeWhenNeeded: the types of one version do not bring those of another.
func TestSchemasAreMadeWhenNeeded(t *testing.T) {
	kinds := apiservertest.Kinds(t)
	types := openapi.NewTypes(kinds)
	configMaps := kinds.Kind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	typ := types.Of(configMaps, &corev1.ConfigMap{})
	if _, found := typ.Schema.FindNamedType("io.k8s.api.apps.v1.Deployment"); found || !typ.IsValid() {
		t.Error("core/v1 has Deployments")
	}
	again := types.Of(kinds.Kind(corev1.SchemeGroupVersion.WithKind("Pod")), &corev1.Pod{})
	if again.Schema != typ.Schema {
		t.Error("two types of one version are of two schemas and can't be compared")
	}
}
