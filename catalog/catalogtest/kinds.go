package catalogtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

// rounds is how many random objects of each kind are tried.
const rounds = 150

// Kinds checks the laws K1 to K8 on kinds. Examples is a directory of manifests,
// one object each, that the kinds must accept; there must be one for each kind.
// The names of kinds whose status counts on creation are listed in keepsStatus.
func Kinds(t *testing.T, kinds []*catalog.Kind, examples string, keepsStatus ...string) {
	c, err := catalog.New(kinds)
	if err != nil {
		t.Fatalf("K1: %v", err)
	}
	seen := map[string]bool{}
	for _, file := range manifests(t, examples) {
		t.Run("accepts "+strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			kind, obj := Load(t, c, file)
			seen[kind.Kind] = true
			obj, err := kind.Accept(obj)
			if err != nil {
				t.Fatal(err)
			}
			accepted(t, kind, obj)
			unknownTypes(t, kind, obj)
			converted(t, kind, obj)
		})
	}
	for _, k := range kinds {
		t.Run(k.Kind, func(t *testing.T) {
			if !seen[k.Kind] {
				t.Errorf("K4: no example of %s in %s", k.Kind, examples)
			}
			named(t, k)
			empty(t, k)
			for seed := range int64(rounds) {
				strange(t, k, Random(k, seed), Random(k, seed+rounds))
			}
			statusApart(t, k, contains(keepsStatus, k.Kind))
			for _, v := range k.Versions {
				for seed := range int64(rounds) {
					strangeVersion(v, seed)
				}
			}
		})
	}
}

func contains(all []string, s string) bool {
	return slices.Contains(all, s)
}

func manifests(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests in %s: %v", dir, err)
	}
	return files
}

// Load reads a manifest strictly, so that a misspelled field is a failure.
func Load(t *testing.T, c *catalog.Catalog, file string) (*catalog.Kind, catalog.Object) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var meta runtime.TypeMeta
	if err := yaml.Unmarshal(data, &meta); err != nil {
		t.Fatal(err)
	}
	kind := c.Kind(meta.GroupVersionKind())
	if kind == nil {
		t.Fatalf("%s: no kind %v", file, meta.GroupVersionKind())
	}
	obj := kind.New()
	if err := yaml.UnmarshalStrict(data, obj); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return kind, obj
}

// Create treats obj as the API server does on creation, apart from
// admission, and returns its faults.
func Create(kind *catalog.Kind, obj catalog.Object) error {
	if kind.Answered() { // it is only read
		apply(kind.Default, obj)
		if kind.Validate == nil {
			return nil
		}
		return kind.Validate(context.Background(), obj, nil).ToAggregate()
	}
	if kind.Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace("default")
	}
	obj.SetUID("11111111-2222-3333-4444-555555555555")
	obj.SetCreationTimestamp(metav1.Unix(1_700_000_000, 0))
	if kind.Generation {
		obj.SetGeneration(1)
	}
	apply(kind.Default, obj)
	if kind.Prepare != nil {
		kind.Prepare(obj, nil)
	}
	obj.SetResourceVersion("1")
	errs := catalog.ValidateMeta(kind, obj, nil)
	if kind.Validate != nil {
		errs = append(errs, kind.Validate(context.Background(), obj, nil)...)
	}
	return errs.ToAggregate()
}

// Update treats obj as the API server does on an update of old.
func Update(kind *catalog.Kind, obj, old catalog.Object) error {
	apply(kind.Default, obj)
	if kind.Prepare != nil {
		kind.Prepare(obj, old)
	}
	errs := catalog.ValidateMeta(kind, obj, old)
	if kind.Validate != nil {
		errs = append(errs, kind.Validate(context.Background(), obj, old)...)
	}
	return errs.ToAggregate()
}

// UpdateSub treats obj as the API server does on an update of old through a
// subresource of the kind that is a part of it.
func UpdateSub(kind *catalog.Kind, sub string, obj, old catalog.Object) error {
	s := kind.Subresource(sub).Shape.(catalog.Part)
	apply(kind.Default, obj)
	s.Prepare(obj, old)
	errs := catalog.ValidateMeta(kind, obj, old)
	if s.Validate != nil {
		errs = append(errs, s.Validate(context.Background(), obj, old)...)
	}
	return errs.ToAggregate()
}

func apply(f func(catalog.Object), obj catalog.Object) {
	if f != nil {
		f(obj)
	}
}

func accepted(t *testing.T, kind *catalog.Kind, obj catalog.Object) { // K4
	t.Helper()
	if err := Create(kind, obj); err != nil {
		t.Fatalf("K4: create: %v", err)
	}
	if kind.Answered() {
		return
	}
	if err := Update(kind, clone(obj), obj); err != nil {
		t.Errorf("K4: update with itself: %v", err)
	}
	if kind.Subresource("status") != nil {
		if err := UpdateSub(kind, "status", clone(obj), obj); err != nil {
			t.Errorf("K4: status update with itself: %v", err)
		}
	}
	twice := clone(obj)
	apply(kind.Default, twice)
	if !equality.Semantic.DeepEqual(twice, obj) {
		t.Errorf("K2: Default changes an object that was accepted")
	}
}

func converted(t *testing.T, kind *catalog.Kind, obj catalog.Object) { // K8
	t.Helper()
	for _, k := range kind.Served() {
		in, err := k.FromHub(clone(obj))
		if err != nil {
			t.Fatalf("K8: %v", err)
		}
		out, err := k.ToHub(in)
		if err != nil {
			t.Fatalf("K8: %v", err)
		}
		if !equality.Semantic.DeepEqual(out, obj) {
			t.Errorf("K8: converted to %s and back:\n%+v\nwas\n%+v", k.GroupVersion(), out, obj)
		}
	}
}

// unknownTypes gives each IntOrString of an accepted object, one after the other, a type that
// there is not.
func unknownTypes(t *testing.T, kind *catalog.Kind, obj catalog.Object) { // K7
	t.Helper()
	for n := 0; ; n++ {
		bad := clone(obj)
		left := n
		if !spoilNth(reflect.ValueOf(bad).Elem(), &left) {
			return
		}
		if err := Create(kind, bad); err == nil || !strings.Contains(err.Error(), "unknown type: 7") && !strings.Contains(err.Error(), "must be an integer or percentage") {
			t.Errorf("K7: IntOrString number %d of type 7: %v", n, err)
		}
	}
}

// spoilNth gives the IntOrString within v before which there are *left others the type 7.
func spoilNth(v reflect.Value, left *int) bool {
	if p, ok := reflect.TypeAssert[*intstr.IntOrString](v.Addr()); ok {
		if *left == 0 {
			p.Type = 7
			return true
		}
		*left--
		return false
	}
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && spoilNth(v.Elem(), left)
	case reflect.Slice:
		for i := range v.Len() {
			if spoilNth(v.Index(i), left) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && spoilNth(v.Field(i), left) {
				return true
			}
		}
	default:
	}
	return false
}

func named(t *testing.T, k *catalog.Kind) { // K1
	t.Helper()
	for _, name := range append([]string{k.Resource, k.Singular}, k.ShortNames...) {
		if name == "" || name != strings.ToLower(name) {
			t.Errorf("K1: name %q is not in lower case", name)
		}
	}
	if got := reflect.TypeOf(k.New()).Elem().Name(); got != k.Kind {
		t.Errorf("K1: New makes a %s, want a %s", got, k.Kind)
	}
	if k.Computed != nil && !slices.Equal(k.Verbs, []string{"get", "list"}) {
		t.Errorf("K1: what is computed has the verbs %q, want get and list", k.Verbs)
	}
	if k.Answer != "" {
		if len(k.Verbs) != 1 || k.Verbs[0] != "create" {
			t.Errorf("K1: what is answered has the verbs %q, want create alone", k.Verbs)
		}
	} else if got := reflect.TypeOf(k.NewList()).Elem().Name(); got != k.Kind+"List" {
		t.Errorf("K1: NewList makes a %s, want a %sList", got, k.Kind)
	}
	for _, f := range k.Indexed {
		if k.Fields[f] == nil {
			t.Errorf("K1: indexed field %q is not among the fields", f)
		}
	}
	columns := map[string]bool{}
	for _, c := range k.Columns {
		if c.Name == "" || c.Description == "" || columns[c.Name] {
			t.Errorf("K1: column %q has no description or is a duplicate", c.Name)
		}
		columns[c.Name] = true
	}
	subs := map[string]bool{}
	for _, s := range k.Subresources {
		if s.Name == "" || len(s.Verbs) == 0 || subs[s.Name] {
			t.Errorf("K1: subresource %q has no verbs or is a duplicate", s.Name)
		}
		subs[s.Name] = true
		if p, ok := s.Shape.(catalog.Part); ok && p.Prepare == nil {
			t.Errorf("K1: subresource %q has no Prepare", s.Name)
		}
	}
}

func empty(t *testing.T, k *catalog.Kind) { // K3
	t.Helper()
	use(t, k, k.New(), nil)
	obj := k.New()
	apply(k.Default, obj)
	use(t, k, obj, k.New())
}

// Fuzz checks K2 and K3 on objects made of the fuzzer's bytes.
func Fuzz(f *testing.F, kinds []*catalog.Kind) {
	for i := range kinds {
		f.Add(uint8(i), []byte("an object and the one before it"))
	}
	f.Fuzz(func(t *testing.T, i uint8, data []byte) {
		k := kinds[int(i)%len(kinds)]
		obj, old := k.New(), k.New()
		fill := configured(randfill.NewFromGoFuzz(data))
		fill.Fill(obj)
		fill.Fill(old)
		strange(t, k, obj, old)
	})
}

// strange tries an object of random content as a new one, and as an update of
// another.
func strange(t *testing.T, k *catalog.Kind, obj, old catalog.Object) {
	t.Helper()
	use(t, k, clone(obj), nil)
	use(t, k, clone(obj), old)

	apply(k.Default, obj)
	once := clone(obj)
	apply(k.Default, obj)
	if !equality.Semantic.DeepEqual(once, obj) {
		t.Fatalf("K2: Default is not idempotent: %+v", once)
	}
	// A shallow copy shares everything with the original; the race detector
	// sees a Default that writes.
	g := run.NewGroup(t.Context(), 0)
	for range 2 {
		g.Go(func(context.Context) { apply(k.Default, shallow(obj)) })
	}
	g.Wait()
}

// strangeVersion converts objects of random content; refusing them is fine.
func strangeVersion(v catalog.Version, seed int64) { // K8
	obj := v.New()
	filler(seed).Fill(obj)
	apply(v.Default, obj)
	if hub, err := v.ToHub(obj); err == nil {
		_, _ = v.FromHub(hub)
	}
}

// use calls everything that a kind has.
func use(t *testing.T, k *catalog.Kind, obj, old catalog.Object) {
	t.Helper()
	now := time.Unix(1_700_000_000, 0)
	cells(t, k, obj, now)
	for _, f := range k.Fields {
		f(obj)
	}
	if k.Grace != nil {
		k.Grace(obj, nil)
	}
	if k.Held != nil {
		k.Held(obj)
	}
	if k.Sole != nil {
		k.Sole(obj)
	}
	for _, s := range k.Subresources {
		var change func(catalog.Object, runtime.Object) error
		switch s := s.Shape.(type) {
		case catalog.Part:
			if old == nil {
				break
			}
			o := clone(obj)
			s.Prepare(o, old)
			if s.Validate != nil {
				s.Validate(context.Background(), o, old)
			}
		case catalog.View:
			s.Get(obj)
			change = s.Apply
		case catalog.Action:
			change = s.Apply
		}
		if change != nil {
			body := s.Body().New()
			filler(int64(len(obj.GetName()))).Fill(body)
			_ = change(clone(obj), body) // refusing is fine
			_ = change(clone(obj), s.Body().New())
		}
	}
	if k.Validate != nil {
		k.Validate(context.Background(), clone(obj), old)
	}
	apply(k.Default, obj)
	if k.Prepare != nil {
		k.Prepare(obj, old)
	}
	if k.Validate != nil {
		for _, err := range k.Validate(context.Background(), obj, old) {
			_ = err.Error()
		}
	}
	cells(t, k, obj, now)
	apply(k.Terminating, obj)
}

// declared are the columns whose type does not fit their cells, as in upstream.
var declared = map[string]struct{ column, cell string }{
	"Count":      {"string", "int64"},
	"Data":       {"string", "int64"},
	"Suspend":    {"boolean", "string"},
	"Up-to-date": {"string", "int64"},
}

func cells(t *testing.T, k *catalog.Kind, obj catalog.Object, now time.Time) { // K6
	t.Helper()
	for _, c := range k.Columns {
		cell := c.Cell(obj, now)
		ok := false
		switch cell.(type) {
		case string:
			ok = c.Type == "string" || c.Type == "date"
		case int64:
			ok = c.Type == "integer"
		case bool:
			ok = c.Type == "boolean"
		}
		if fits, differs := declared[c.Name]; differs && c.Type == fits.column {
			ok = fmt.Sprintf("%T", cell) == fits.cell
		}
		if !ok {
			t.Errorf("K6: column %q of type %q has a cell of type %T", c.Name, c.Type, cell)
		}
	}
}

// statusApart checks K5 on kinds that have a status of their own endpoint.
func statusApart(t *testing.T, k *catalog.Kind, keeps bool) {
	t.Helper()
	sub := k.Subresource("status")
	if sub == nil {
		return
	}
	fields := func(obj catalog.Object) (spec, status reflect.Value) {
		v := reflect.ValueOf(obj).Elem()
		return v.FieldByName("Spec"), v.FieldByName("Status")
	}
	same := func(a, b reflect.Value) bool { return equality.Semantic.DeepEqual(a.Interface(), b.Interface()) }

	random := func(seed int64) catalog.Object {
		for ; seed < 100; seed += 2 {
			obj := Random(k, seed)
			if _, status := fields(obj); !same(status, reflect.Zero(status.Type())) {
				return obj
			}
		}
		t.Fatalf("K5: random objects have no status")
		return nil
	}
	obj, old := random(1), random(2)
	_, brought := fields(clone(obj))
	created := clone(obj)
	k.Prepare(created, nil)
	if _, status := fields(created); !keeps && same(status, brought) {
		t.Errorf("K5: Prepare keeps the status of a new object")
	}

	updated := clone(obj)
	k.Prepare(updated, old)
	// A service that is not balanced any more loses that status, so the law is
	// that nothing comes from the update.
	if _, status := fields(updated); same(status, brought) {
		t.Errorf("K5: an update changes the status")
	}
	updated = clone(obj)
	sub.Shape.(catalog.Part).Prepare(updated, old)
	now, _ := fields(updated)
	was, _ := fields(old)
	if !same(now, was) {
		t.Errorf("K5: a status update changes the spec")
	}
}

// Random returns an object of random content; the same seed makes the same
// object.
func Random(k *catalog.Kind, seed int64) catalog.Object {
	obj := k.New()
	filler(seed).Fill(obj)
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return obj
}

func filler(seed int64) *randfill.Filler { return configured(randfill.NewWithSeed(seed)) }

// configured returns f with functions for the types that must have a certain form.
func configured(f *randfill.Filler) *randfill.Filler {
	return f.NilChance(0.4).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(1<<40)-10, resource.DecimalSI)
		},
		func(p *intstr.IntOrString, c randfill.Continue) {
			if *p = intstr.FromInt32(c.Int31n(70000)); c.Bool() {
				*p = intstr.FromString(c.String(20))
			}
			if c.Int31n(8) == 0 {
				p.Type = intstr.Type(c.Int63()) // protobuf carries any; decoders refuse it
			}
		},
		func(tm *metav1.Time, c randfill.Continue) { *tm = metav1.Unix(c.Int63n(2_000_000_000), 0) },
		func(tm *metav1.MicroTime, c randfill.Continue) { tm.Time = time.Unix(c.Int63n(2_000_000_000), 0) },
		func(e *runtime.RawExtension, c randfill.Continue) {
			*e = runtime.RawExtension{}
			if c.Bool() {
				e.Raw = []byte(`{"a":"b"}`)
			}
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString("{}") },
	)
}

func clone(obj catalog.Object) catalog.Object { return obj.DeepCopyObject().(catalog.Object) }

// shallow returns a copy of obj that shares all that is behind pointers.
func shallow(obj catalog.Object) catalog.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(catalog.Object)
}
