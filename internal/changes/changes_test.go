package changes_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sampan-io/sampan/internal/changes"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFieldsNamesChanges(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"value":          {`{"spec":{"replicas":1}}`, `{"spec":{"replicas":3}}`, []string{".spec.replicas: 1 -> 3"}},
		"new and gone":   {`{"data":{"a":"x"}}`, `{"data":{"b":"y"}}`, []string{".data.a: x -> <nil>", ".data.b: <nil> -> y"}},
		"odd name":       {`{"data":{"a.b/c":"x"}}`, `{"data":{"a.b/c":"y"}}`, []string{`.data["a.b/c"]: x -> y`}},
		"element by key": {`{"c":[{"name":"a","image":"1"},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a","image":"2"}]}`, []string{".c[name=a].image: 1 -> 2"}},
		"element with control characters": {
			`{"c":[{"name":"\u001b[31mX\n + .spec","x":1}]}`, `{"c":[{"name":"\u001b[31mX\n + .spec","x":2}]}`,
			[]string{`.c[name="\x1b[31mX\n + .spec"].x: 1 -> 2`},
		},
		"element with slash": {`{"c":[{"type":"a.b/C"}]}`, `{"c":[]}`, []string{".c[type=a.b/C]: map[type:a.b/C] -> <nil>"}},
		"order":              {`{"c":[{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a"}]}`, []string{".c: [map[name:a] map[name:b]] -> [map[name:b] map[name:a]]"}},
		"condition":          {`{"c":[{"type":"Ready","status":"True"}]}`, `{"c":[{"type":"Ready","status":"False"}]}`, []string{".c[type=Ready].status: True -> False"}},
		"plain list":         {`{"args":["a","b"]}`, `{"args":["a","c","d"]}`, []string{".args[1]: b -> c", ".args[2]: <nil> -> d"}},
		"same name twice": {
			`{"c":[{"name":"a","x":1},{"name":"a","x":2}]}`, `{"c":[{"name":"a","x":1},{"name":"a","x":3}]}`,
			[]string{".c[1].x: 2 -> 3"},
		},
		"set by the server": {`{"metadata":{"resourceVersion":"1","generation":1,"managedFields":[1]}}`, `{"metadata":{"resourceVersion":"2","generation":2}}`, nil},
		"other type":        {`{"a":{"b":1}}`, `{"a":"b"}`, []string{".a: map[b:1] -> b"}},
		"null":              {`{"a":null}`, `{}`, nil},
		"from nothing":      {``, `{"a":1}`, []string{".: <nil> -> map[a:1]"}},
	} {
		fields, more := changes.Fields(object(t, c.before), object(t, c.after))
		var got []string
		for _, f := range fields {
			got = append(got, fmt.Sprintf("%s: %v -> %v", f.Path, f.Before, f.After))
		}
		if diff := cmp.Diff(c.want, got); diff != "" || more != 0 {
			t.Errorf("%s: %d more (-want +got):\n%s", name, more, diff)
		}
	}
}

func TestFieldsAreBounded(t *testing.T) {
	before, after := map[string]any{}, map[string]any{"long": strings.Repeat("é", 5000)}
	for i := range 200 {
		after[fmt.Sprintf("z%03d", i)] = i
	}
	fields, more := changes.Fields(before, after)
	if len(fields) != 64 || more != 201-64 {
		t.Errorf("%d fields and %d more", len(fields), more)
	}
	if text := fmt.Sprint(fields[0].After); len(text) > 300 || !strings.HasSuffix(text, "(10000 bytes)") {
		t.Errorf("a long value is shown as %q", text)
	}
}

// TestFieldsOfLargeChangesAreCounted checks that fields beyond the limit are counted without making their paths, and that
// the fields that are shown are the first ones in the order of their paths.
func TestFieldsOfLargeChangesAreCounted(t *testing.T) {
	const size = 20_000
	data, named := [2]map[string]any{{}, {}}, [2][]any{}
	for i := range size {
		for state := range 2 {
			data[state][fmt.Sprintf("k%05d", i)] = float64(2*i + state)
			named[state] = append(named[state], map[string]any{"name": fmt.Sprintf("n%05d", i), "x": float64(state)})
		}
	}
	before, after := map[string]any{"data": data[0], "list": named[0]}, map[string]any{"data": data[1], "list": named[1]}
	fields, more := changes.Fields(before, after)
	if len(fields) != 64 || more != 2*size-64 {
		t.Fatalf("%d fields and %d more", len(fields), more)
	}
	for i, f := range fields {
		if want := fmt.Sprintf(".data.k%05d", i); f.Path != want {
			t.Fatalf("field %d is %s, want %s", i, f.Path, want)
		}
	}
	if allocs := testing.AllocsPerRun(1, func() { changes.Fields(before, after) }); allocs > 3*size { // a path has several
		t.Errorf("%v allocations for %d changed fields", allocs, 2*size)
	}
	long := strings.Repeat("x", 100_000)
	fields, _ = changes.Fields(map[string]any{long: 1.0}, map[string]any{long: 2.0})
	if len(fields[0].Path) > 1000 || !strings.HasSuffix(fields[0].Path, "(100000 bytes)]") {
		t.Errorf("a field with a long name: %d bytes", len(fields[0].Path))
	}
}

func TestMaskHidesValuesOfSecrets(t *testing.T) {
	applied := `{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"VALUE","note":"shown"}}`
	before := object(t, `{"data":{"a":"VALUE","b":"VALUE","c":"VALUE"},"metadata":`+applied+`}`)
	after := object(t, `{"data":{"a":"VALUE","b":"VALUE2","d":"VALUE"},"stringData":{"e":"VALUE"},"metadata":`+applied+`}`)
	text := func(v ...any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	was := text(before, after)
	a, b := changes.Mask(before, after)
	if got := text(a, b); strings.Contains(got, "VALUE") || !strings.Contains(got, "shown") {
		t.Errorf("masked: %s", got)
	}
	if text(before, after) != was {
		t.Error("the states were changed")
	}
	want := `[{"a":"***","b":"*** (before)","c":"***"},{"a":"***","b":"*** (after)","d":"***"}]`
	if got := text(a["data"], b["data"]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if a, b := changes.Mask(nil, after); a != nil || strings.Contains(text(b), "VALUE") {
		t.Errorf("from nothing: %v %v", a, b)
	}
}
