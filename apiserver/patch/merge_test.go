package patch_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
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
