package expression_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sampan-io/sampan/internal/expression"
	"github.com/sampan-io/sampan/internal/hangtest"
)

// object is decoded as encoding/json does (numbers are float64); ints stand in it as
// the Kubernetes decoders leave them (int64).
func object(t testing.TB) map[string]any {
	t.Helper()
	var o map[string]any
	err := json.Unmarshal([]byte(`{
		"metadata": {"name": "web", "labels": {"app": "web"}, "generation": 3, "finalizers": ["a", "b"], "deletionTimestamp": null},
		"spec": {"replicas": 3, "paused": true},
		"status": {
			"readyReplicas": 3,
			"since": "2026-01-02T03:04:05Z",
			"conditions": [{"type": "Ready", "status": "True"}, {"type": "Fresh"}]
		}
	}`), &o)
	if err != nil {
		t.Fatal(err)
	}
	o["status"].(map[string]any)["observedGeneration"] = int64(3)
	return o
}

func TestHolds(t *testing.T) {
	tests := []struct {
		text string
		want bool
	}{
		{`object.metadata.name == "web"`, true},
		{`self.metadata.name == "web"`, true},
		{`object.metadata.labels["app"] == "web" && "app" in object.metadata.labels`, true},
		{`object.spec.paused`, true},

		// Numbers: int literals, int64, float64, in all combinations.
		{`object.status.readyReplicas == 3 && object.status.observedGeneration == 3`, true},
		{`object.status.readyReplicas >= 3 && object.status.observedGeneration >= 3`, true},
		{`object.metadata.generation == object.status.observedGeneration`, true},
		{`object.metadata.generation > object.status.observedGeneration`, false},
		{`object.spec.replicas < 3.5 && object.status.observedGeneration < 3.5`, true},
		{`object.spec.replicas in [1, 2, 3]`, true},
		{`object.status.observedGeneration + 1 == 4`, true},
		{`int(object.spec.replicas) + 1 == 4`, true},

		// What is missing does not hold, however it is asked for.
		{`object.status.phase == "Running"`, false},
		{`object.status.phase != "Running"`, false},
		{`!(object.status.phase == "Running")`, false},
		{`object.status.pods.web.ready`, false},
		{`object.nowhere.phase == "Running"`, false},
		{`object.metadata.labels["tier"] == "db"`, false},
		{`object.status.conditions[7].status == "True"`, false},
		{`object.status.conditions.exists(c, c.reason == "x")`, false},
		{`object.status.conditions.all(c, c.status == "True")`, false},
		{`object.status.containerStatuses.all(c, c.ready)`, false},
		{`object.metadata.deletionTimestamp.year == 1`, false},
		{`object.metadata.deletionTimestamp`, false},
		{`object.metadata.name.first == "w"`, false},
		// The answer does not hang on it here.
		{`object.status.phase == "Running" || object.metadata.name == "web"`, true},
		{`object.status.conditions.exists(c, c.status == "True")`, true},
		{`!has(object.status.phase)`, true},
		{`object.?status.?phase.orValue("none") == "none"`, true},
		{`object.metadata.deletionTimestamp == null`, true},

		{`object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`, true},
		{`object.status.conditions.filter(c, has(c.status)).size() == 1`, true},
		{`object.metadata.labels.all(k, v, k == "app" && v == "web")`, true},
		{`sets.contains(object.metadata.finalizers, ["a"])`, true},
		{`object.metadata.name.upperAscii().startsWith("W") && object.metadata.name.matches("^w.b$")`, true},
		{`object.metadata.finalizers.slice(0, 1) == ["a"]`, true},
		{`math.greatest(1, 2) == 2`, true},
		{`timestamp(object.status.since) < timestamp("2027-01-01T00:00:00Z")`, true},
		{"object.spec.paused // a note\n\t&& true", true},
	}
	o := object(t)
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			e, err := expression.Compile(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if e.String() != tt.text {
				t.Errorf("String() = %q", e)
			}
			if got, err := e.Holds(o); got != tt.want || err != nil {
				t.Errorf("Holds = %v, %v, want %v, nil", got, err, tt.want)
			}
			if got, err := e.Holds(nil); err != nil && got {
				t.Errorf("Holds of nothing = %v, %v", got, err)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	deep := strings.Repeat("(", 150) + "true" + strings.Repeat(")", 150)
	tests := []struct{ text, want string }{
		{"", "1:1: the expression is empty"},
		{" \n", "1:1: the expression is empty"},
		{strings.Repeat("!", 3000) + "true", "1:1: the expression is 3004 bytes long, want at most 2048"},
		{`"web"`, "1:1: the expression gives string, want bool: compare it with something"},
		{`object.metadata.finalizers.map(x, x)`, "1:1: the expression gives list(any value), want bool: compare it with something"},
		{`object.spec.replicas ==`, "1:24: the expression ends too early"},
		{"object.spec.paused &&\n  object.spec.x ~ 1", "2:17: not a part of the language: ~"},
		{`object.spec.x = 1`, "1:15: not a part of the language: ="},
		{`object.spec.x == "abc`, `1:18: the text that begins here has no closing quote: "abc`},
		{`status.phase == "x"`, `1:1: there is no variable or function "status" (the variables are object and self; a field is object.status)`},
		{`now() > object.x`, "1:4: there is no clock: an expression is evaluated again only when its object changes"},
		{`1 == "a"`, "1:3: == cannot be used with (int, string)"},
		{`object.x.startsWith(1)`, "1:20: startsWith of any value cannot be used with (int)"},
		{`true.x`, "1:5: bool has no fields"},
		{`object.x.matches("(")`, "1:18: not a regular expression"},
		{`object.x.matches("a{1000}b{1000}")`, "1:18: the regular expression is too large"},
		{`object.x.matches(string(b"a{1000}b{1000}"))`, "1:1: the regular expression is too large"},
		{`duration("soon") > duration("1s")`, `1:10: not a duration such as "90s" or "1h30m"`},
		{`timestamp("soon") > timestamp("2026-01-02T15:04:05Z")`, `1:11: not a timestamp, such as "2026-01-02T15:04:05Z"`},
		{deep, "1:1: it is nested more than 100 deep"},
		{`[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))`, "1:41: more than 3 macros such as all() and map() in one another"},
		{`object.a.replace("", object.b) == ""`, "1:17: replace() is not supported"},
		{`object.a.join(object.b) == ""`, "1:14: join() is not supported"},
		{`"%s".format([object.b]) == ""`, "1:12: format() is not supported"},
		{`sets.contains(object.a, object.b)`, `1:14: one argument of sets.contains must be a list that is written out, such as ["a", "b"]`},
	}
	for _, tt := range tests {
		_, err := expression.Compile(tt.text)
		if _, ok := errors.AsType[*expression.SyntaxError](err); !ok {
			t.Errorf("Compile(%.60q) = %v, want a SyntaxError", tt.text, err)
			continue
		}
		if got := err.Error(); got != tt.want && !strings.HasPrefix(got, tt.want+"; ") {
			t.Errorf("Compile(%.60q):\n got %s\nwant %s", tt.text, got, tt.want)
		}
	}
}

func TestHoldsSaysWhatDoesNotGoTogether(t *testing.T) {
	const types = "types that do not go together: a function, an operator or a field is used with a value of another type"
	tests := []struct{ text, want string }{
		{`object.metadata.name > 3`, "1:22: " + types},
		{`object.metadata.name + 1 == 4`, "1:22: " + types},
		{`object.metadata.name`, "the result is string, want bool"},
		{`object.status.conditions[0]`, "the result is map, want bool"},
		{`object.spec.replicas`, "the result is double, want bool"},
		{`object.status.observedGeneration / 0 == 1`, "1:34: division by zero"},
		{`int(object.metadata.name) == 1`, "1:4: type conversion error from 'string' to 'int'"},
		{`object.metadata.name.matches("(" + object.metadata.name)`, "1:29: error parsing regexp: missing closing ): `(web`"},
		{`object.metadata.name.matches(object.metadata.name + "a{1000}b{1000}")`, "1:29: the regular expression is too large"},
		{`object.metadata.name.matches(object.status)`, "1:29: " + types},
	}
	o := object(t)
	for _, tt := range tests {
		e, err := expression.Compile(tt.text)
		if err != nil {
			t.Errorf("Compile(%q) = %v", tt.text, err)
			continue
		}
		ok, err := e.Holds(o)
		var eval *expression.EvalError
		if ok || !errors.As(err, &eval) || eval.Limit {
			t.Errorf("%q holds: %v, %v; want an EvalError that is no limit", tt.text, ok, err)
			continue
		}
		if _, got, _ := strings.Cut(err.Error(), fmt.Sprintf("%q: ", tt.text)); got != tt.want {
			t.Errorf("%q:\n got %s\nwant %s", tt.text, got, tt.want)
		}
	}
}

// TestHostileExpressionsEnd evaluates what would take hours, or all the memory.
func TestHostileExpressionsEnd(t *testing.T) {
	numbers := make([]any, 5000)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	o := map[string]any{"list": numbers, "text": strings.Repeat("a", 1<<20)}
	for _, text := range []string{
		`object.list.all(a, object.list.all(b, object.list.all(c, a + b + c >= 0)))`,
		`object.list.map(a, object.list.map(b, object.list)).size() == 1`,
		`object.list.map(a, object.list) == object.list.map(a, object.list)`, // one call compares 25 million
		`object.list.map(a, object.list) in [object.list.map(a, object.list)]`,
		`object.list.exists(a, a in object.list && a < 0)`,
		`object.list.exists(a, object.text == "b" || object.text.matches("(a*)*b"))`,
		`object.list.map(a, object.text + object.text).size() == 1`,
		`object.list.exists(a, sets.intersects(object.list, [-1]))`,
	} {
		e, err := expression.Compile(text)
		if err != nil {
			t.Errorf("Compile(%q) = %v", text, err)
			continue
		}
		ok, err := e.Holds(o)
		var eval *expression.EvalError
		if ok || !errors.As(err, &eval) || !eval.Limit || !strings.Contains(err.Error(), "too many steps for this object (cost limit 100000)") {
			t.Errorf("%q holds: %v, %v; want the cost limit's error", text, ok, err)
		}
	}
}

func TestOneExpressionFromManyGoroutines(t *testing.T) {
	e, err := expression.Compile(`object.status.conditions.exists(c, c.type == object.want)`)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			o := object(t)
			o["want"] = []string{"Ready", "Nothing"}[i%2]
			for range 200 {
				if ok, err := e.Holds(o); ok != (i%2 == 0) || err != nil {
					t.Errorf("Holds = %v, %v", ok, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// FuzzCompile checks that any text is refused with a place or answers within its limits,
// and gives the same answer when it is asked again.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`,
		`object.spec.replicas == 3 ? true : object.x[1]`, `self.?a.?b.orValue(1) > 2`, `"\u00e9" in object`,
		`[[1], {"a": b"x"}] != null`, `object.a.all(k, v, has(v.b))`, "a\nb", "`", `duration("1h") + timestamp("x")`,
	} {
		f.Add(seed)
	}
	o := object(f)
	f.Fuzz(func(t *testing.T, text string) {
		defer hangtest.Guard(t)()
		e, err := expression.Compile(text)
		if err != nil {
			var syntax *expression.SyntaxError
			if !errors.As(err, &syntax) || len(syntax.Faults) == 0 || syntax.Faults[0].Line < 1 || syntax.Faults[0].Column < 1 {
				t.Fatalf("Compile(%q) = %v, want a SyntaxError with a place", text, err)
			}
			return
		}
		ok, err := e.Holds(o)
		again, err2 := e.Holds(o)
		if ok != again || (err == nil) != (err2 == nil) || ok && err != nil {
			t.Fatalf("%q: %v, %v, and then %v, %v", text, ok, err, again, err2)
		}
	})
}
