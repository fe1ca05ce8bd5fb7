package patch_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/patch"
)

// TestMergePatch compares merge patches with those of the library, whose results upstream's are.
func TestMergePatch(t *testing.T) {
	const original = `{"a":{"b":1,"c":[1,{"d":null}]},"big":123456789012345678901234567890,"float":1.0,"text":"<&>"}`
	for _, p := range []string{
		`{}`, `{"a":null}`, `{"a":{"b":null}}`, `{"a":{"x":null}}`, `{"a":5}`, `{"a":{"b":{"x":null,"y":1}}}`, `{"n":{"x":null,"y":{"z":null}}}`,
		`{"a":{"c":[null,{"x":null,"y":[{"z":null}]}]}}`, `{"l":[null,[null,{"q":null}]]}`, `{"a":[]}`, `{"big":{"x":null}}`,
		`{"float":100000000000000000000000}`, `{"a":{"b":1,"b":2}}`, `{"text":null,"text":"x"}`,
	} {
		want, err := jsonpatch.MergePatch([]byte(original), []byte(p))
		if err != nil {
			t.Fatal(err)
		}
		got, err := patch.Apply(types.MergePatchType, []byte(p), []byte(original), nil)
		if err != nil || !reflect.DeepEqual(decoded(t, got), decoded(t, want)) {
			t.Errorf("%s: %s, %v, want %s", p, got, err, want)
		}
	}
	for _, p := range []string{`{`, `{}{}`, `{"a":01}`, `{} x`, `[]`, `null`, ``} {
		if got, err := patch.Apply(types.MergePatchType, []byte(p), []byte(original), nil); err == nil || !strings.Contains(err.Error(), "error decoding patch: ") {
			t.Errorf("%s: %s, %v", p, got, err)
		}
	}
}

// The library takes minutes for this.
func TestMergePatchWithManyMembers(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"data":{"x":"y"`)
	for i := range 300_000 {
		fmt.Fprintf(&b, `,"%06d":0`, i)
	}
	b.WriteString(`}}`)
	got, err := patch.Apply(types.MergePatchType, []byte(b.String()), []byte(`{"data":{"a":"b"}}`), nil)
	if err != nil || len(got) != b.Len()+len(`,"a":"b"`) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Without bounds each of these takes minutes of a processor.
func TestPatchesThatTakeLongAreRefused(t *testing.T) {
	list := func(format string, n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(all, ",")
	}
	small := `{"spec":{"volumes":[]}}`
	large := `{"spec":{"volumes":[` + list(`{"name":"a%d"}`, 2_000) + `]}}`
	names := `{"data":{` + list(`"%05d":""`, 60_000) + `}}`
	adds := `[` + list(`{"op":"add","path":"/data/z%d","value":""}`, 10_000) + `]`
	for _, c := range []struct {
		name            string
		kind            types.PatchType
		patch, original string
		refused         string
	}{
		{"a long list", types.StrategicMergePatchType, `{"spec":{"volumes":[` + list(`{"name":"v%d"}`, 2_001) + `]}}`, small, "lists of more than 2000 items cannot be merged"},
		{"one item for a long list", types.StrategicMergePatchType, `{"spec":{"volumes":[{"name":"v"}]}}`, large, "lists of more than 2000 items cannot be merged"},
		{"the order of a long list", types.StrategicMergePatchType, `{"spec":{"$setElementOrder/volumes":[{"name":"v"}]}}`, large, "lists of more than 2000 items cannot be merged"},
		{"something else", types.StrategicMergePatchType, `{"metadata":{"labels":{"a":"b"}}}`, large, ""},
		{"a list of some length", types.StrategicMergePatchType, `{"spec":{"volumes":[` + list(`{"name":"v%d"}`, 500) + `]}}`, small, ""},
		{"many operations on many names", types.JSONPatchType, adds, names, "The allowed maximum operations in a JSON patch of an object of 660010 bytes is 813, got 10000"},
		{"many operations", types.JSONPatchType, adds, `{"data":{}}`, ""},
		{"few operations on many names", types.JSONPatchType, `[{"op":"add","path":"/data/z","value":""}]`, names, ""},
	} {
		_, err := patch.Apply(c.kind, []byte(c.patch), []byte(c.original), &corev1.Pod{})
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		}
	}
}
