package declared_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/catalog/declared"
)

// generated returns the text of the generated files by package.
func generated(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*/zz_generated.validations.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d generated files: %v", len(files), err)
	}
	texts := map[string]string{}
	for _, file := range files {
		texts[filepath.Dir(file)] = read(t, file)
	}
	return texts
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestGeneratedFromTheAPIOfTheModule fails after an update of k8s.io/api: run make generate, and
// read the difference.
func TestGeneratedFromTheAPIOfTheModule(t *testing.T) {
	version := regexp.MustCompile(`(?m)^\tk8s\.io/api (v\S+)$`).FindStringSubmatch(read(t, "../../go.mod"))
	if version == nil {
		t.Fatal("go.mod does not require k8s.io/api")
	}
	for pkg, text := range generated(t) {
		if !strings.Contains(text, "\n// Generated from k8s.io/api "+version[1]+".\n") {
			t.Errorf("%s is not generated from k8s.io/api %s: make generate", pkg, version[1])
		}
	}
}

// TestEveryKindIsChecked compares the table in rules.go with the kinds that have a rule which is
// enforced. To call the rules of the others is a waste.
func TestEveryKindIsChecked(t *testing.T) {
	rules := generatedRules(t)
	table := read(t, "rules.go")
	for name, r := range rules {
		if !r.kind {
			continue
		}
		called := strings.Contains(table, "run(ctx, op, "+name+", o, old)")
		if enforced := rules.enforced(name); called != enforced {
			t.Errorf("%s: called by rules.go: %t, has an enforced rule: %t", name, called, enforced)
		}
	}
}

// A function is what a generated function does, by its text.
type function struct {
	kind     bool     // it checks a type with a TypeMeta
	enforced bool     // it has a rule that is not alpha
	calls    []string // the generated functions that it calls
}

// functions has the generated functions by name: "core.Validate_Pod".
type functions map[string]function

func (f functions) enforced(name string) bool {
	if f[name].enforced {
		return true
	}
	return slices.ContainsFunc(f[name].calls, f.enforced)
}

// generatedRules reads the generated functions. A function of apimachinery is not among them: the
// declared rules of metadata and conditions are alpha.
func generatedRules(t *testing.T) functions {
	t.Helper()
	call := regexp.MustCompile(`(?:(\w+)\.)?Validate_\w+`)
	none := regexp.MustCompile(`\bValidate_|^validate\.Optional`) // no rule of the function itself
	all := functions{}
	for pkg, text := range generated(t) {
		for _, text := range strings.Split(text, "\nfunc ")[1:] {
			text, _, _ = strings.Cut(text, "\n}\n")
			name, body, _ := strings.Cut(text, "(")
			f := function{kind: strings.Contains(body, ".TypeMeta has no validation")}
			for _, statement := range strings.Split(body, "if e := ")[1:] {
				statement, _, _ = strings.Cut(statement, "; len(e)")
				if !strings.Contains(statement, ".MarkAlpha()") && !none.MatchString(statement) {
					f.enforced = true
				}
			}
			for _, match := range call.FindAllStringSubmatch(body, -1) {
				if match[1] == "" {
					match[0] = pkg + "." + match[0]
				}
				f.calls = append(f.calls, match[0])
			}
			all[pkg+"."+name] = f
		}
	}
	return all
}

func TestEveryGateIsKnown(t *testing.T) {
	gate := regexp.MustCompile(`validate\.IfOption\([^"]*"(\w+)"`)
	used := map[string]bool{}
	for pkg, text := range generated(t) {
		for _, match := range gate.FindAllStringSubmatch(text, -1) {
			if used[match[1]] = true; !slices.Contains(declared.Gates(), match[1]) {
				t.Errorf("%s depends on the gate %s, which has no default", pkg, match[1])
			}
		}
	}
	for _, name := range declared.Gates() {
		if !used[name] {
			t.Errorf("no rule depends on the gate %s", name)
		}
	}
}
