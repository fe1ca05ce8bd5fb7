package await_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/await"
)

func TestParseDegreeRoundTrip(t *testing.T) {
	for _, text := range []string{
		"accepted", "observed", "scheduled", "running", "ready", "serving", "old-gone", "finished", "complete", "deleted", "created",
		"settled=30s", "condition=Ready", "condition=Ready=False", "jsonpath={.a}", "jsonpath={.a} absent", "jsonpath={.a}=b", "jsonpath={.a}!=b",
		"jsonpath={.a}<3", "jsonpath={.a}>3", "jsonpath={.a}<=3", "jsonpath={.a}>=3Gi", "cel=object.a == 'b'",
		"any(complete, condition=Failed)", "all(ready, any(settled=30s, jsonpath={.a}=b))", "any(cel=object.a in ['x', ')'], deleted)",
	} {
		d, err := await.ParseDegree(text)
		if err != nil || d.String() != text {
			t.Errorf("%q is read as %q: %v", text, d, err)
		}
		if d.Infinitive() == "" || d.Reached() == "" {
			t.Errorf("%q has no words", text)
		}
	}
}

func TestParseDegreeAnyAll(t *testing.T) {
	for text, want := range map[string]string{
		"any(complete,failed)":               "any(complete, condition=Failed)",
		" ALL( ready , condition=A=B ) ":     "all(ready, condition=A=B)",
		"any(ready)":                         "ready",
		`any(cel=object.a == "a\")", ready)`: `any(cel=object.a == "a\")", ready)`,
		"any()":                              `error: "any()": want degrees with commas between them, as in any(complete, condition=Failed)`,
		"any(ready,)":                        `error: "any(ready,)": want degrees with commas between them, as in any(complete, condition=Failed)`,
		"all(ready":                          `error: "all(ready": want a ) at its end`,
		"all(ready))":                        `error: "all(ready))": its ) has no counterpart`,
		"any(jsonpath={.a]=b)":               `error: "any(jsonpath={.a]=b)": its ] has no counterpart`,
		"any(cel=object.a == 'b)":            `error: "any(cel=object.a == 'b)": its ' has no counterpart`,
		"any(ready, redy)":                   `error: nothing can be waited for that is called "redy"`,
		"any(ready, all(settled=soon, running), deleted)": `error: "settled=soon": want settled=DURATION`,
	} {
		d, err := await.ParseDegree(text)
		got := d.String()
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.HasPrefix(got, want) || err == nil && got != want {
			t.Errorf("%s is read as %s, want %s", text, got, want)
		}
	}
}

func TestDegreeWords(t *testing.T) {
	both := await.All(await.Ready, await.Condition("Pretty", ""))
	for _, tt := range []struct{ got, want string }{
		{both.String(), "all(ready, condition=Pretty)"},
		{both.Infinitive(), "be ready and meet condition=Pretty"},
		{await.Any(await.Finished, await.Deleted).Infinitive(), "finish or be deleted"},
		{await.Any(await.Finished).String(), "finished"},
		{await.Settled(time.Minute).Infinitive(), "be ready for 1m0s"},
		{await.Settled(0).String(), "ready"},
	} {
		if tt.got != tt.want {
			t.Errorf("it is %q, want %q", tt.got, tt.want)
		}
	}
	if await.Condition("A", "True") != await.Condition("A", "") {
		t.Error("the same condition is not equal")
	}
}

func FuzzParseDegree(f *testing.F) {
	for _, seed := range []string{"ready", "jsonpath={.a}>=b", "jsonpath=.a[?(@.b=='c')].d exists", "cel=object.a", "settled=1h", "condition=A=B", "any(ready, all(cel=object.a[0], jsonpath={.a}=','))"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := await.ParseDegree(text)
		if err != nil {
			return
		}
		// What is printed is read as the same again.
		again, err := await.ParseDegree(d.String())
		if err != nil || again.String() != d.String() {
			t.Errorf("%q is printed as %q, which is %q: %v", text, d, again, err)
		}
	})
}
