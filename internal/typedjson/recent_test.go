package typedjson

import (
	"strings"
	"testing"
	"unsafe"
)

// Objects that are read share the short strings that they have in common, and no others.
func TestObjectsShareShortStrings(t *testing.T) {
	type object struct {
		Name string            `json:"name"`
		Map  map[string]string `json:"map"`
	}
	long := strings.Repeat("x", longString+1)
	read := func(name string) (o object) {
		t.Helper()
		if !Unmarshal([]byte(`{"name":"`+name+`","map":{"a":"the same","b":"`+long+`"}}`), &o) {
			t.Fatal("not read")
		}
		return o
	}
	same := func(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }
	read("0")
	a, b := read("1"), read("2")
	if a.Name != "1" || b.Name != "2" || a.Map["a"] != "the same" || a.Map["b"] != long {
		t.Errorf("read %v and %v", a, b)
	}
	if !same(a.Map["a"], b.Map["a"]) {
		t.Error("equal short strings are not shared")
	}
	if same(a.Map["b"], b.Map["b"]) {
		t.Error("long strings are shared")
	}
}

// Strings that share a place replace each other.
func TestRecentStringsReplaceEachOther(t *testing.T) {
	for i := range 3 * recentStrings {
		for range 3 {
			want := strings.Repeat("y", i%longString) + string(rune('a'+i%26))
			if got, ok := recent.find([]byte(want)); ok && got != want {
				t.Fatalf("find(%q) = %q", want, got)
			}
		}
	}
}
