package fieldpath_test

import (
	"testing"

	"github.com/sampan-io/sampan/await/fieldpath"
	"github.com/sampan-io/sampan/internal/expression"
)

// Wherever the answer is yes the expression holds, or cannot be answered, which is an
// answer, too: it is looked at again.
func TestAnExpressionHoldsWhereverTheAnswerIsYes(t *testing.T) {
	values := []any{
		"Running", "3", "3.5", "true", "500m", "", "abc", int64(3), int64(1000000), 3.0, 3.5, 1e6, -2.0, int64(1) << 60, true, false, nil,
		map[string]any{"c": "x"},
		[]any{"x"},
		[]any{},
	}
	var objects []map[string]any
	for _, v := range values {
		objects = append(objects, map[string]any{"a": map[string]any{"b": v}})
	}
	objects = append(objects, map[string]any{}, map[string]any{"a": nil}, map[string]any{"a": map[string]any{}}, map[string]any{"a": "text"})
	told := 0
	for _, text := range []string{
		"", " exists", " absent", "=Running", "=3", "=3.0", "=03", "=true", "=false", "=1000000", "=1e+06", "=null", "=<nil>", `="quoted"`, "=[]", "=500m",
		"!=Running", "!=3", "!=true", "!=abc", "!=null", "<3", "<3.5", "<=3", ">3", ">=3", ">-5", "<1000001", "<500m", ">1e300", "<9007199254740993",
	} {
		q, err := fieldpath.Parse(".a.b" + text)
		if err != nil {
			t.Fatal(err)
		}
		cel, ok := q.CEL()
		if !ok {
			continue
		}
		told++
		e, err := expression.Compile(cel)
		if err != nil {
			t.Errorf("%s: %s: %v", q, cel, err)
			continue
		}
		for _, o := range objects {
			yes, _, err := q.Holds(o)
			if err != nil {
				t.Fatal(err)
			}
			if holds, err := e.Holds(o); yes && !holds && err == nil {
				t.Errorf("%s is true of %v, and %s is not", q, o, cel)
			}
		}
	}
	if told < 20 {
		t.Errorf("%d questions have expressions, want more", told)
	}
	for _, text := range []string{".a[0]", ".a[*].b", "..b", ".a['b']", "a[?(@.b==1)].c=3"} {
		if q, err := fieldpath.Parse(text); err != nil {
			t.Error(err)
		} else if cel, ok := q.CEL(); ok {
			t.Errorf("%s has an expression: %s", q, cel)
		}
	}
}
