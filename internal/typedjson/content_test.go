package typedjson_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/sampan-io/sampan/internal/hangtest"
	"github.com/sampan-io/sampan/internal/typedjson"
)

// FuzzContent compares the reader and the writer of objects without a Go type with the packages that define them.
func FuzzContent(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { "a" : [ 1 , -2 , "x" , true , false , null , { } , [ ] ] } `, `{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, `null`, `[]`, `{"a":1.5}`, `{"a":1e3}`,
		`{"a":-0}`, `{"a":01}`, `{"a":-}`, `{"a":9223372036854775807,"b":-9223372036854775808}`, `{"a":9223372036854775808}`, `{"a":999999999999999999}`,
		`{"\u0061":"\ud83d\ude00\u2028<>&\n\"\\"}`, `{"a\u0000":"é"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\x01\"}", `{"a":tru}`, `{"a":1}x`, `{"a":1,}`, `{"a"}`, `{"a":[1,]}`, `{`, `{"a":"`,
		`{"A":1,"a":2,"aa":3,"B":4}`, `{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, `{"a":1}` + "\n", `{"a":nul}`, `{"":""}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		defer hangtest.Guard(t)()
		var want map[string]any
		strict, err := kjson.UnmarshalStrict(text, &want)
		got, ok := typedjson.UnmarshalContent(text)
		if ok && (err != nil || len(strict) > 0 || !reflect.DeepEqual(got, want)) {
			t.Fatalf("%q is %v; UnmarshalStrict says %v, %v, %v", text, got, want, strict, err)
		}
		if err != nil {
			return
		}
		encoded, err := json.Marshal(want)
		if again, failed := typedjson.MarshalContent(want); !bytes.Equal(again, encoded) || (err == nil) != (failed == nil) {
			t.Fatalf("%v is %q, %v; Marshal says %q, %v", want, again, failed, encoded, err)
		}
	})
}

// TestUnmarshalContentReadsPlainObjects checks that it does not give up where it need not.
func TestUnmarshalContentReadsPlainObjects(t *testing.T) {
	const text = `{"kind":"Widget","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"n":-12,"list":[1,"é",null,true,{}],"text":"a \"b\" \u00e9"}}`
	if _, ok := typedjson.UnmarshalContent([]byte(text)); !ok {
		t.Errorf("it gives up on %s", text)
	}
}

// TestMarshalContentLeavesForeignValues has values that no decoder makes.
func TestMarshalContentLeavesForeignValues(t *testing.T) {
	deep := map[string]any{}
	for range 2000 {
		deep = map[string]any{"a": deep}
	}
	for _, content := range []map[string]any{
		nil,
		{"a": 1, "b": int32(2), "c": uint8(3)},
		{"a": map[string]string{"b": "<c>"}, "b": []string{"d"}, "c": json.Number("1.50"), "d": []any(nil), "e": map[string]any(nil)},
		{"a": 1e21, "b": 1e-7, "c": 0.1, "d": math.Copysign(0, -1), "e": float64(3)},
		{"a": math.NaN()},
		{"a": func() {}},
		{"b\xff": "\xff", "b\ufffd": 1},
		deep,
	} {
		want, err := json.Marshal(content)
		if got, failed := typedjson.MarshalContent(content); !bytes.Equal(got, want) || (err == nil) != (failed == nil) {
			t.Errorf("%.100v is %.100q, %v; Marshal says %.100q, %v", content, got, failed, want, err)
		}
	}
}
