package fieldpath_test

import (
	"testing"

	"github.com/sampan-io/sampan/await/fieldpath"
)

// The questions themselves are asked in the stories of package await.
func TestAQuestionIsReadAsItIsPrinted(t *testing.T) {
	object := map[string]any{"a": map[string]any{"b": int64(3), "c": []any{"x", "y"}}}
	for _, tt := range []struct {
		text, printed string
		holds         bool
		why           string
	}{
		{"a.b", "{.a.b}", true, ""},
		{"{.a.b} exists", "{.a.b}", true, ""},
		{".a.b absent", "{.a.b} absent", false, "{.a.b} has a value"},
		{".a.z absent", "{.a.z} absent", true, ""},
		{".a.b = 3", "{.a.b}=3", true, ""},
		{".a.b!=3", "{.a.b}!=3", false, `{.a.b} is "3"`},
		{".a.b<4", "{.a.b}<4", true, ""},
		{".a.c[?(@=='x')]=x", "{.a.c[?(@=='x')]}=x", true, ""},
	} {
		q, err := fieldpath.Parse(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if q.String() != tt.printed {
			t.Errorf("%s is printed as %s, want %s", tt.text, q, tt.printed)
		}
		if holds, why, err := q.Holds(object); holds != tt.holds || why != tt.why || err != nil {
			t.Errorf("%s: %v, %q, %v; want %v, %q", tt.text, holds, why, err, tt.holds, tt.why)
		}
	}
	q, err := fieldpath.New(".a.c[*]", fieldpath.Exists, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := q.Holds(object); err == nil {
		t.Error("several values were taken")
	}
	for _, text := range []string{"", "=", ".a=", "{.a", ".a>b", ".a[=b"} {
		if _, err := fieldpath.Parse(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestAPathWithHalfAPairOfQuotesIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`"a=b`:                `jsonpath "\"a": its " has no counterpart`,
		`{.a['b]}`:            `jsonpath "{.a['b]}": its ' has no counterpart`,
		`{.a[?(@=="b'c")]}=d`: "",
	} {
		_, err := fieldpath.Parse(text)
		if got := errorText(err); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAValueInQuotesIsTheSameQuestion(t *testing.T) {
	for text, want := range map[string]string{
		".a=b,c": `{.a}='b,c'`, ".a!='x'": `{.a}!='x'`, `.a=it's,so`: `{.a}="it's,so"`, ".a absent": "{.a} absent",
	} {
		q, err := fieldpath.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		again, err := fieldpath.Parse(q.Quoted())
		if q.Quoted() != want || err != nil || again.String() != q.String() {
			t.Errorf("%s is quoted as %s (%v), want %s", text, q.Quoted(), err, want)
		}
	}
}
