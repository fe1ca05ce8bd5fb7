package declared_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/declared"
	"github.com/sampan-io/sampan/catalog/kinds"
)

// TestRulesByHandAgree compares the declared rules, alpha ones too, with those by hand of all kinds
// that are served. It plays the stories of the kinds, and changes each field of an example in turn.
// testdata/differences.txt has the known differences, a line for each kind, field and type of error,
// and the reason or the effect after it:
//
//	lacks   only the declared rules have the error
//	is T    the rules by hand have an error of the type T for that field
//	extra   only the rules by hand have the error in a creation, and a declared rule has it elsewhere
//
// A rule that is alpha is not enforced, and says so. Metadata is left out: its declared rules are all
// alpha, and those by hand are apimachinery's.
//
// With -update the list is written again; then write the reasons.
func TestRulesByHandAgree(t *testing.T) {
	c := comparison{
		ctx:     validate.WithAllDeclarativeEnforcedForTest(t.Context()),
		found:   map[string]bool{},
		checked: map[fault]bool{},
		extra:   map[fault]bool{},
	}
	all := kinds.All()
	for _, kind := range all {
		c.watch(kind)
	}
	table, err := catalog.New(all)
	if err != nil {
		t.Fatal(err)
	}
	varied := map[string]bool{}
	for _, examples := range found(t, "../*/testdata/accepted") {
		if stories := filepath.Join(examples, "../stories"); len(found(t, stories)) > 0 {
			catalogtest.Stories(t, all, stories, examples)
		}
		for _, file := range found(t, filepath.Join(examples, "*.yaml")) {
			if kind, obj := catalogtest.Load(t, table, file); !varied[kind.Kind] && kind == kind.Hub() {
				varied[kind.Kind] = true
				c.vary(t, kind, obj)
			}
		}
	}
	for seed := range int64(20) {
		for _, kind := range all {
			c.play(kind, catalogtest.Random(kind, seed), catalogtest.Random(kind, -1-seed))
		}
	}
	if c.broken != nil {
		t.Errorf("a declared rule failed: %v", c.broken)
	}
	c.agree(t, "testdata/differences.txt")
}

// A fault is what a rule finds: a type of error in a field, with [] for any index.
type fault struct {
	kind, field string
	error       field.ErrorType
}

func (f fault) String() string { return fmt.Sprintf("%s %s: %s", f.kind, f.field, f.error) }

type comparison struct {
	ctx     context.Context //nolint:containedctx // of the test
	found   map[string]bool // differences
	checked map[fault]bool  // what declared rules have found
	extra   map[fault]bool  // what only rules by hand have found
	broken  *field.Error    // an internal error
}

// watch makes the rules of kind report the differences.
func (c *comparison) watch(kind *catalog.Kind) {
	watched := func(
		rules func(ctx context.Context, obj, old catalog.Object) field.ErrorList, subresource string,
	) func(ctx context.Context, obj, old catalog.Object) field.ErrorList {
		return func(ctx context.Context, obj, old catalog.Object) field.ErrorList {
			var errs field.ErrorList
			if rules != nil {
				errs = rules(ctx, obj, old)
			}
			c.check(kind, obj, old, subresource, errs)
			return errs
		}
	}
	kind.Validate = watched(kind.Validate, "")
	for i, sub := range kind.Subresources {
		switch shape := sub.Shape.(type) {
		case catalog.Part:
			shape.Validate = watched(shape.Validate, sub.Name)
			kind.Subresources[i].Shape = shape
		case catalog.View:
			shape.Validate = watched(shape.Validate, sub.Name)
			kind.Subresources[i].Shape = shape
		}
	}
}

var index = regexp.MustCompile(`\[[^\]]*\]`)

func (c *comparison) check(kind *catalog.Kind, obj, old catalog.Object, subresource string, byHand field.ErrorList) {
	at := func(e *field.Error) fault { return fault{kind.Kind, index.ReplaceAllString(e.Field, "[]"), e.Type} }
	same := func(e *field.Error) func(*field.Error) bool {
		return func(d *field.Error) bool { return d.Field == e.Field && d.Type == e.Type }
	}
	rules := declared.Validate(c.ctx, obj, old, subresource)
	for _, e := range rules {
		if e.Type == field.ErrorTypeInternal {
			c.broken = e
		}
		if c.checked[at(e)] = true; slices.ContainsFunc(byHand, same(e)) || strings.HasPrefix(e.Field, "metadata") {
			continue
		}
		verdict := "lacks"
		if i := slices.IndexFunc(byHand, func(h *field.Error) bool { return h.Field == e.Field }); i >= 0 {
			verdict = "is " + byHand[i].Type.String()
		}
		if e.IsAlpha() {
			verdict += " (alpha)"
		}
		c.found[fmt.Sprintf("%s: %s", at(e), verdict)] = true
	}
	if old == nil {
		for _, e := range byHand {
			if !slices.ContainsFunc(rules, same(e)) {
				c.extra[at(e)] = true
			}
		}
	}
}

// vary plays obj with each of its fields changed in turn.
func (c *comparison) vary(t *testing.T, kind *catalog.Kind, obj catalog.Object) {
	t.Helper()
	if err := catalogtest.Create(kind, obj); err != nil {
		t.Fatal(err)
	}
	changed := clone(obj)
	change(reflect.ValueOf(changed).Elem(), 0, func() {
		if c.refuses(changed, nil) || c.refuses(changed, obj) || c.refuses(obj, changed) {
			c.play(kind, changed, obj)
		}
	})
}

// refuses reports whether there is a declared rule against obj: if not, there is nothing to compare.
func (c *comparison) refuses(obj, old runtime.Object) bool {
	return len(declared.Validate(c.ctx, obj, old, "")) > 0
}

// play creates obj, and updates old to obj and obj to old in each way that there is.
func (c *comparison) play(kind *catalog.Kind, obj, old catalog.Object) {
	valid := catalogtest.Create(kind, clone(obj)) == nil
	_ = catalogtest.Update(kind, clone(obj), old)
	if valid {
		_ = catalogtest.Update(kind, clone(old), clone(obj))
	}
	for _, sub := range kind.Subresources {
		if _, ok := sub.Shape.(catalog.Part); ok {
			_ = catalogtest.UpdateSub(kind, sub.Name, clone(obj), old)
		}
	}
}

func clone(obj catalog.Object) catalog.Object { return obj.DeepCopyObject().(catalog.Object) }

// deepest is how many levels of fields are changed.
const deepest = 12

// change sets v and everything in it to one strange value after the other, and calls f each time.
func change(v reflect.Value, level int, f func()) {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	try := func(value any) {
		v.Set(reflect.ValueOf(value).Convert(v.Type()))
		f()
		v.Set(was)
	}
	switch v.Interface().(type) {
	case metav1.TypeMeta, metav1.Time, metav1.MicroTime, runtime.RawExtension:
		return
	case corev1.PodTemplateSpec: // has the rules of a pod
		if level = deepest - 4; v.FieldByName("Spec").FieldByName("Containers").Len() == 0 {
			return
		}
	case resource.Quantity:
		try(resource.MustParse("-1"))
		return
	case intstr.IntOrString:
		try(intstr.FromInt32(-1))
		try(intstr.FromString("?"))
		return
	}
	if level > deepest {
		return
	}
	switch v.Kind() {
	case reflect.String:
		for _, s := range []string{"", "A?", "a.example/b", "x.k8s.io/y", strings.Repeat("a", 1100)} {
			try(s)
		}
	case reflect.Int32, reflect.Int64:
		for _, n := range []int64{-1, 0, 1 << 30} {
			try(n)
		}
	case reflect.Bool:
		try(!v.Bool())
	case reflect.Pointer:
		value := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			value.Elem().Set(v.Elem())
			try(reflect.Zero(v.Type()).Interface())
		}
		v.Set(value)
		f()
		change(value.Elem(), level, f)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		if v.Len() > 0 {
			elem.Set(v.Index(0))
		}
		for _, n := range []int{0, 1, 2, 101} {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				v.Index(i).Set(elem)
			}
			f()
		}
		v.SetLen(1)
		change(v.Index(0), level+1, f)
	case reflect.Map:
		for _, n := range []int{0, 1, 101} {
			v.Set(reflect.MakeMap(v.Type()))
			for i := range n {
				v.SetMapIndex(reflect.ValueOf(fmt.Sprint("k?", i)).Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
			}
			f()
		}
	case reflect.Struct:
		for _, part := range v.Fields() {
			change(part, level+1, f)
		}
	default: // floats, interfaces and others have no declared rules
	}
	v.Set(was)
}

// agree compares the differences with those in a file.
func (c *comparison) agree(t *testing.T, file string) {
	t.Helper()
	for f := range c.extra {
		if c.checked[f] {
			c.found[f.String()+": extra"] = true
		}
	}
	reasons := map[string]string{}
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		difference, reason, _ := strings.Cut(strings.TrimSpace(line), "; ")
		reasons[difference] = reason
	}
	if flag.Lookup("update").Value.String() == "true" {
		var text strings.Builder
		for _, difference := range slices.Sorted(maps.Keys(c.found)) {
			text.WriteString(difference + "; " + reasons[difference] + "\n")
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for difference := range c.found {
		if reasons[difference] == "" {
			t.Errorf("not in %s, or without a reason: %s", file, difference)
		}
	}
	for difference := range reasons {
		if !c.found[difference] {
			t.Errorf("in %s, but no longer so: %s", file, difference)
		}
	}
}

func found(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
