package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const page = "../../wait/APIMACHINERY.md"

// TestPage checks that the page has a row for each exported name of apimachinery's
// package, that each of them is tested in this module, and that the code on the page
// stands in the tests, where it is compiled and run.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("equivalence_test.go")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*?) \\|")
	code := regexp.MustCompile("`([^`]*)`")
	var onPage []string
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		onPage = append(onPage, m[1])
		snippets := code.FindAllStringSubmatch(m[2], -1)
		if len(snippets) == 0 {
			t.Errorf("the row of %s has no code", m[1])
		}
		for _, s := range snippets {
			if !strings.Contains(string(source), s[1]) {
				t.Errorf("the row of %s says `%s`, which is not in the tests", m[1], s[1])
			}
		}
	}
	var tested []string
	for _, p := range pairs {
		tested = append(tested, p.name)
	}
	for name := range names {
		tested = append(tested, name)
	}
	want := exported(t)
	for _, list := range [][]string{onPage, tested, want} {
		slices.Sort(list)
	}
	if !slices.Equal(onPage, want) {
		t.Errorf("on the page:\n%v\nexported by apimachinery:\n%v", onPage, want)
	}
	if !slices.Equal(tested, want) {
		t.Errorf("tested:\n%v\nexported by apimachinery:\n%v", tested, want)
	}
}

// exported returns the names that apimachinery's package exports, without methods.
func exported(t *testing.T) []string {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/apimachinery/pkg/util/wait").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	add := func(id *ast.Ident) {
		if id.IsExported() {
			found = append(found, id.Name)
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id)
						}
					}
				}
			}
		}
	}
	return found
}
