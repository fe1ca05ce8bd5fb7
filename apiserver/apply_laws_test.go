package apiserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/internal/hangtest"
)

// A ledger is the data of a ConfigMap and the managers of each key, by rules that fit on a page.
type ledger struct {
	data   map[string]string
	owners map[string]map[string]bool // of each key: "alice Apply"
}

func (l *ledger) own(key, who string) {
	if l.owners[key] == nil {
		l.owners[key] = map[string]bool{}
	}
	l.owners[key][who] = true
}

// apply returns the keys that others manage and that would change, or changes the ledger.
func (l *ledger) apply(manager string, config map[string]string, force bool) (conflicts []string) {
	who := manager + " Apply"
	for key, value := range config {
		for owner := range l.owners[key] {
			if owner != who && l.data[key] != value && !force {
				conflicts = append(conflicts, key)
				break
			}
		}
	}
	if len(conflicts) > 0 {
		return conflicts
	}
	for key, owners := range l.owners {
		if _, applied := config[key]; owners[who] && !applied {
			if delete(owners, who); len(owners) == 0 {
				delete(l.data, key)
				delete(l.owners, key)
			}
		}
	}
	for key, value := range config {
		if old, there := l.data[key]; !there || old != value {
			l.owners[key] = nil
		}
		l.data[key] = value
		l.own(key, who)
	}
	return nil
}

// patch sets a key, or removes it if the value is nil.
func (l *ledger) patch(manager, key string, value *string) {
	old, there := l.data[key]
	switch {
	case value == nil:
		delete(l.data, key)
		delete(l.owners, key)
	case !there || old != *value:
		l.data[key] = *value
		l.owners[key] = nil
		l.own(key, manager+" Update")
	}
}

func (l *ledger) String() string {
	var lines []string
	for key, value := range l.data {
		lines = append(lines, fmt.Sprintf("%s=%s %v", key, value, slices.Sorted(maps.Keys(l.owners[key]))))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// ledgerOf reads the same from an object.
func ledgerOf(t *rapid.T, cm *corev1.ConfigMap) *ledger {
	l := &ledger{data: cm.Data, owners: map[string]map[string]bool{}}
	for _, e := range cm.ManagedFields {
		var set fieldpath.Set
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			t.Fatal(err)
		}
		set.Leaves().Iterate(func(p fieldpath.Path) {
			if key, ok := strings.CutPrefix(p.String(), ".data."); ok {
				l.own(key, e.Manager+" "+string(e.Operation))
			}
		})
	}
	return l
}

// TestApplyLaws lets managers apply and patch at random. After each step the object has
// what the ledger says, and is managed by whom it says; a conflict names the keys that
// the ledger names and changes nothing; what is applied twice is not written twice.
func TestApplyLaws(t *testing.T) {
	f := serve(t)
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		name := fmt.Sprintf("c%d", n)
		want := &ledger{data: map[string]string{}, owners: map[string]map[string]bool{}}
		manager := rapid.SampledFrom([]string{"alice", "bob", "carol"})
		key, value := rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.SampledFrom([]string{"1", "2"})
		configs := rapid.MapOf(key, value)
		if rapid.Bool().Draw(t, "made before") {
			want.data = configs.Draw(t, "data")
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: want.data}
			if _, err := f.local.Create(f.Context(), gvr, "default", "", cm, metav1.CreateOptions{}, ""); err != nil {
				t.Fatal(err)
			}
			want.data = maps.Clone(want.data)
		}
		version, tracked := "", false
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			who := manager.Draw(t, "manager")
			var obj any
			var err error
			var conflicts []string
			if version != "" && rapid.IntRange(0, 3).Draw(t, "patch") == 0 {
				k := key.Draw(t, "key")
				v := rapid.Ptr(value, true).Draw(t, "value")
				body, bad := json.Marshal(map[string]any{"data": map[string]any{k: v}})
				if bad != nil {
					t.Fatal(bad)
				}
				if want.patch(who, k, v); !tracked {
					clear(want.owners)
				}
				obj, err = f.local.Patch(f.Context(), gvr, "default", name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: who}, "")
			} else {
				config, force := configs.Draw(t, "config"), rapid.Bool().Draw(t, "force")
				whole := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}
				if len(config) > 0 { // empty data is not kept, and yet a field
					whole["data"] = config
				}
				body, bad := json.Marshal(whole)
				if bad != nil {
					t.Fatal(bad)
				}
				opts := metav1.PatchOptions{FieldManager: who, Force: &force}
				if !tracked {
					for k := range want.data {
						want.own(k, "before-first-apply Update")
					}
				}
				conflicts = want.apply(who, config, force)
				obj, err = f.local.Patch(f.Context(), gvr, "default", name, types.ApplyYAMLPatchType, body, opts, "")
				if err == nil {
					again, err := f.local.Patch(f.Context(), gvr, "default", name, types.ApplyYAMLPatchType, body, opts, "")
					if err != nil || again.(*corev1.ConfigMap).ResourceVersion != obj.(*corev1.ConfigMap).ResourceVersion {
						t.Fatalf("%s applied %s twice: %v, %v", who, body, again, err)
					}
				}
			}
			if len(conflicts) > 0 {
				if slices.Sort(conflicts); !tracked {
					clear(want.owners)
				}
				if got := conflictsOf(err); !slices.Equal(got, conflicts) {
					t.Fatalf("%s conflicts on %q, %v; want %q", who, got, err, conflicts)
				}
				if now, err := f.local.Get(f.Context(), gvr, "default", name, ""); version != "" && (err != nil || now.(*corev1.ConfigMap).ResourceVersion != version) {
					t.Fatalf("a conflict wrote %v, %v", now, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			cm := obj.(*corev1.ConfigMap)
			version, tracked = cm.ResourceVersion, len(cm.ManagedFields) > 0
			if got := ledgerOf(t, cm).String(); got != want.String() {
				t.Fatalf("after %s:\n%s\nwant:\n%s", who, got, want)
			}
		}
	})
}

// conflictsOf returns the keys that a conflict of managers names, each once.
func conflictsOf(err error) []string {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != 409 || status.Status().Details == nil {
		return nil
	}
	var keys []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			keys = append(keys, strings.TrimPrefix(c.Field, ".data."))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// hostile are bodies that mean harm: none is applied, and each is refused soon.
func hostile() map[string]string {
	head := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"`
	many := func(n int, item func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		return b.String()
	}
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, many(10, func(int) string { return fmt.Sprintf("*a%d", i-1) }))
	}
	return map[string]string{
		"nested lists":          strings.Repeat("[", 1<<20),
		"nested in a field":     head + `},"data":` + strings.Repeat(`{"a":`, 1<<18),
		"nested and whole":      head + `},"data":` + strings.Repeat(`{"a":`, 9_000) + `1` + strings.Repeat(`}`, 9_000) + `}`,
		"nested YAML":           strings.Repeat("- ", 1<<19),
		"a bomb of lists":       bomb,
		"a bomb of text":        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: &k " + strings.Repeat("x", 1<<20) + "\nmore: [" + many(50_000, func(int) string { return "*k" }) + "]\n",
		"an alias of itself":    "a: &a [*a]\n",
		"a merge of itself":     "a: &a\n  <<: *a\n",
		"many fields":           head + `},"data":{` + many(200_000, func(i int) string { return fmt.Sprintf(`"%d":""`, (i*7919)%200_000) }) + `}}`,
		"many finalizers":       head + `,"finalizers":[` + many(100_000, func(i int) string { return fmt.Sprintf(`"x/%d"`, 200_000-i) }) + `]}}`,
		"many lists":            head + `,"finalizers":[` + many(4_990, func(i int) string { return fmt.Sprintf(`"x/%d"`, i) }) + `],"ownerReferences":[` + many(4_990, func(i int) string { return fmt.Sprintf(`{"uid":"%d"}`, i) }) + `]}}`,
		"unknown fields":        head + `},` + many(4_000, func(i int) string { return fmt.Sprintf(`"unknown%d":1`, i) }) + `}`,
		"the same twice":        head + `,"finalizers":["a/b","a/b"]}}`,
		"a set of maps":         head + `,"finalizers":[{}]}}`,
		"a set of lists":        head + `,"finalizers":[[]]}}`,
		"a set of nothing":      head + `,"finalizers":[null]}}`,
		"owners without a key":  head + `,"ownerReferences":[{}]}}`,
		"owners of nothing":     head + `,"ownerReferences":[null]}}`,
		"owners that are texts": head + `,"ownerReferences":["a"]}}`,
		"metadata of a text":    `{"apiVersion":"v1","kind":"ConfigMap","metadata":"a"}`,
		"metadata of nothing":   `{"apiVersion":"v1","kind":"ConfigMap","metadata":null,"data":{"x":1}}`,
		"labels of a list":      head + `,"labels":[]}}`,
		"names of a number":     `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":1}}`,
		"a kind of a number":    `{"apiVersion":1,"kind":2,"metadata":{"name":"a"}}`,
		"a time of a text":      head + `,"creationTimestamp":"yesterday"}}`,
		"data that is no text":  head + `},"binaryData":{"a":"%%%"}}`,
		"no UTF-8":              head + "},\"data\":{\"a\":\"\xff\xfe\"},\"x\":1}",
		"a zero byte":           "\x00",
		"nothing":               "",
		"a comment":             "# nothing\n",
		"two documents":         "---\nkind: x\n---\nkind: y\n",
		"a large number":        head + `,"generation":1e400}}`,
	}
}

// TestHostileApplies sends them: each is refused with a status that is not our fault and
// not long, and nothing is changed.
func TestHostileApplies(t *testing.T) {
	f := serve(t)
	f.do("PATCH", configMaps+"/a?fieldManager=alice", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`, "Content-Type: application/apply-patch+yaml")
	before := f.do("GET", configMaps+"/a", nil)
	for name, body := range hostile() {
		t.Run(name, func(t *testing.T) {
			for _, at := range []string{"a", "new"} {
				a := f.do("PATCH", configMaps+"/"+at+"?fieldManager=mallory&force=true&fieldValidation=Ignore", body, "Content-Type: application/apply-patch+yaml")
				if a.code < 400 || a.code >= 500 || len(a.body) > 16<<10 {
					t.Errorf("%s is answered with %d: %.300s", at, a.code, a.body)
				}
			}
			if now := f.do("GET", configMaps+"/a", nil); !bytes.Equal(now.body, before.body) {
				t.Errorf("it is now %.300s", now.body)
			}
			if f.do("GET", configMaps+"/new", nil).code != 404 {
				t.Error("something was made")
			}
		})
	}
}

// FuzzApply gives any bytes to the server as what is applied: they are applied, or refused
// and change nothing; it is never our fault; and what was applied can be applied again.
func FuzzApply(f *testing.F) {
	for _, body := range hostile() {
		if len(body) < 1<<14 {
			f.Add([]byte(body))
		}
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}]}]}}`))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {a: b}, finalizers: [a/b]}\nspec: {containers: [{name: c, image: i, env: [{name: A, value: b}]}]}\n"))
	s := apiservertest.Open(f, func(o *apiserver.Options) { o.Authorizer = onlyBoss{} }).As(boss)
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	first := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	apply := func(t *testing.T, body []byte) (string, error) {
		obj, err := s.Patch(t.Context(), gvr, "default", "a", types.ApplyYAMLPatchType, body, metav1.PatchOptions{FieldManager: "m", Force: new(true)}, "")
		if err != nil {
			return "", err
		}
		return obj.(*corev1.Pod).ResourceVersion, nil
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		defer hangtest.Guard(t)()
		if _, err := apply(t, first); err != nil {
			t.Fatal(err)
		}
		version := func() string {
			obj, err := s.Get(t.Context(), gvr, "default", "a", "")
			if err != nil {
				t.Fatal(err)
			}
			return obj.(*corev1.Pod).ResourceVersion
		}
		before := version()
		after, err := apply(t, body)
		if err != nil {
			status, ok := err.(apierrors.APIStatus)
			if !ok || status.Status().Code >= 500 || version() != before {
				t.Errorf("refused with %v; the version was %s and is %s", err, before, version())
			}
			return
		}
		if again, err := apply(t, body); err != nil || again != after {
			t.Errorf("applied twice: version %s, then %s, %v", after, again, err)
		}
		if err := s.Delete(t.Context(), gvr, "default", "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if obj, err := s.Get(t.Context(), gvr, "default", "a", ""); err == nil { // finalizers
			p := obj.(*corev1.Pod).DeepCopy()
			p.Finalizers = nil
			if _, err := s.Update(t.Context(), gvr, "default", "a", p, metav1.UpdateOptions{}, ""); err != nil {
				t.Fatal(err)
			}
		}
	})
}
