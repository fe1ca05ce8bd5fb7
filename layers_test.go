package sampan_test

import (
	"bufio"
	"flag"
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sampan-io/sampan"

// layers is what the block in ARCHITECTURE.md says. A pattern is a package path
// below the module; "a/*" stands for the packages directly below a.
type layers struct {
	patterns []string       // in the order of the block
	layer    map[string]int // by pattern
	allow    [][2]string    // same layer, from -> to
	wall     [][2]string    // never, however many layers apart
	extern   [][2]string    // never imported: package prefix, and the packages that it is refused for
}

// readLayers reads the first ```text block after the heading "Layers".
func readLayers(t *testing.T) layers {
	t.Helper()
	data, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "## Layers")
	_, rest, ok2 := strings.Cut(rest, "```text\n")
	block, _, ok3 := strings.Cut(rest, "```")
	if !ok || !ok2 || !ok3 {
		t.Fatal("ARCHITECTURE.md has no block of layers")
	}
	f := layers{layer: map[string]int{}}
	level := -1
	lines := bufio.NewScanner(strings.NewReader(block))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "allow" || words[0] == "wall" || words[0] == "never":
			from, to, ok := cut(words[1:])
			if !ok {
				t.Fatalf("line %q: want %s FROM… -> TO…", line, words[0])
			}
			for _, a := range from {
				for _, b := range to {
					switch words[0] {
					case "allow":
						f.allow = append(f.allow, [2]string{a, b})
					case "wall":
						f.wall = append(f.wall, [2]string{a, b})
					case "never":
						f.extern = append(f.extern, [2]string{b, a})
					}
				}
			}
		default:
			if words[0] == "layer" {
				if level, err = strconv.Atoi(words[1]); err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
				words = words[3:] // layer N name
			}
			for _, w := range words {
				f.patterns = append(f.patterns, w)
				f.layer[w] = level
			}
		}
	}
	return f
}

func cut(words []string) (from, to []string, ok bool) {
	i := slices.Index(words, "->")
	if i < 1 || i == len(words)-1 {
		return nil, nil, false
	}
	return words[:i], words[i+1:], true
}

func matches(pattern, pkg string) bool {
	if ok, err := path.Match(pattern, pkg); err == nil && ok {
		return true
	}
	if pattern == "..." {
		return true
	}
	root, all := strings.CutSuffix(pattern, "/...")
	return all && (pkg == root || strings.HasPrefix(pkg, root+"/"))
}

// of returns the layer of a package.
func (f layers) of(pkg string) (int, bool) {
	for _, p := range f.patterns {
		if matches(p, pkg) {
			return f.layer[p], true
		}
	}
	return 0, false
}

func any2(pairs [][2]string, from, to string) bool {
	return slices.ContainsFunc(pairs, func(p [2]string) bool { return matches(p[0], from) && matches(p[1], to) })
}

// verdict says why from, a package of ours, may not import to, or "".
func (f layers) verdict(from, to string) string {
	rel, ours := strings.CutPrefix(to, module+"/")
	if !ours {
		for _, e := range f.extern {
			if (to == e[0] || strings.HasPrefix(to, e[0]+"/")) && matches(e[1], from) {
				return "is refused by a never rule"
			}
		}
		return ""
	}
	upper, _ := f.of(from)
	lower, known := f.of(rel)
	switch {
	case isKit(rel):
		return "is a test kit; only tests and kits may import it"
	case !known:
		return "is in no layer"
	case any2(f.wall, from, rel):
		return "is refused by a wall rule"
	case lower > upper:
		return fmt.Sprintf("is in layer %d, above layer %d", lower, upper)
	case lower == upper && !any2(f.allow, from, rel):
		return fmt.Sprintf("is in the same layer %d and not allowed", lower)
	}
	return ""
}

// isKit reports whether a package is a kit for tests, which may use anything.
func isKit(pkg string) bool { return strings.HasSuffix(pkg, "test") }

// TestLayers checks that imports point down, keep to the wall rules, and that every
// package is in a layer and says in its doc what it is.
func TestLayers(t *testing.T) {
	f := readLayers(t)
	seen := map[string]bool{}
	documented := map[string]bool{}
	used := map[int]bool{} // indexes of f.allow
	for _, file := range goFiles(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		if pkg == "." || strings.HasPrefix(pkg, "test/") || pkg == "clustertest" || pkg == "examples/controller" || isKit(pkg) {
			continue
		}
		seen[pkg] = true
		ast, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.Doc != nil {
			documented[pkg] = true
		}
		for _, imp := range ast.Imports {
			to, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if why := f.verdict(pkg, to); why != "" {
				t.Errorf("%s imports %s, which %s", file, to, why)
			}
			for i, a := range f.allow {
				if matches(a[0], pkg) && matches(a[1], strings.TrimPrefix(to, module+"/")) {
					used[i] = true
				}
			}
		}
	}
	for pkg := range seen {
		if _, ok := f.of(pkg); !ok {
			t.Errorf("package %s is in no layer; add it to ARCHITECTURE.md", pkg)
		}
		if !documented[pkg] {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
	for i, a := range f.allow {
		if !used[i] {
			t.Errorf("ARCHITECTURE.md has allow %s -> %s, and no import needs it", a[0], a[1])
		}
	}
	for _, p := range f.patterns {
		if !slices.ContainsFunc(keys(seen), func(pkg string) bool { return matches(p, pkg) }) {
			t.Errorf("ARCHITECTURE.md puts %s in layer %d, but there is no such package", p, f.layer[p])
		}
	}
}

var update = flag.Bool("update", false, "write the generated pages")

// tableHead begins the page with the table of packages.
const tableHead = `# Packages

What each package does, by the first sentence of its comment. ARCHITECTURE.md says which may import which.

| package | purpose |
|---|---|
`

// folded are folders of many packages that have one row of the table.
var folded = map[string]string{
	"catalog/declared": "each of its packages lists the rules of validation that k8s.io/api declares for one API group (generated)",
	"test":             "tests of the program as a whole and comparisons with upstream's programs; each folder says what it is in its comment",
}

// TestPackageTable checks docs/internals/packages.md: one row per package, made of the first sentence of its package comment. With
// -update it writes the page.
func TestPackageTable(t *testing.T) {
	const page = "docs/internals/packages.md"
	want := tableHead + packageTable(t)
	if got, err := os.ReadFile(page); err == nil && string(got) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not the table of the package comments: go test -run TestPackageTable . -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil { // a page of the project
		t.Fatal(err)
	}
}

// packageTable returns a row for each package, in the order of their paths.
func packageTable(t *testing.T) string {
	t.Helper()
	comments := map[string]string{}
	for _, file := range goFiles(t) {
		pkg := path.Dir(file)
		ast, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if folder := foldedOf(pkg); folder != "" {
			comments[folder+"/**"] = "Package x " + folded[folder] + "."
			continue
		}
		if pkg != "." && (ast.Doc != nil || comments[pkg] == "") {
			comments[pkg] = ast.Doc.Text()
		}
	}
	var table strings.Builder
	for _, pkg := range slices.Sorted(maps.Keys(comments)) {
		fmt.Fprintf(&table, "| `%s` | %s |\n", pkg, purpose(comments[pkg]))
	}
	return table.String()
}

func foldedOf(pkg string) string {
	for folder := range folded {
		if strings.HasPrefix(pkg+"/", folder+"/") && pkg != "catalog/declared" {
			return folder
		}
	}
	return ""
}

// purpose returns the first sentence of a package comment without the words
// "Package X" or "Command X" and without its full stop.
func purpose(comment string) string {
	sentence := new(doc.Package).Synopsis(comment)
	if words := strings.SplitN(sentence, " ", 3); len(words) == 3 && (words[0] == "Package" || words[0] == "Command") {
		sentence = words[2]
	}
	return strings.ReplaceAll(strings.TrimSuffix(sentence, "."), "|", "\\|")
}

// TestLayersRefuseBreaches makes sure that the test above can fail.
func TestLayersRefuseBreaches(t *testing.T) {
	f := readLayers(t)
	tests := []struct{ from, to, why string }{
		{"scheduler", module + "/store", "wall"},
		{"store", module + "/apiserver", "above"},
		{"apiserver", module + "/client", "wall"},
		{"cli", module + "/cluster", "wall"},
		{"runtime/image", module + "/client", "wall"},
		{"node", module + "/proxy", "same layer"},
		{"client", "k8s.io/client-go/kubernetes", "never"},
		{"apiserver/operation", "net/http", "never"},
		{"apiserver/operation", "net/url", "never"},
		{"proxy", module + "/client/clienttest", "kit"},
		{"proxy", module + "/nowhere", "no layer"},
	}
	for _, tt := range tests {
		if got := f.verdict(tt.from, tt.to); !strings.Contains(got, tt.why) {
			t.Errorf("%s importing %s: %q, want a breach of %q", tt.from, tt.to, got, tt.why)
		}
	}
}

// maxLines is the length beyond which a file has more than one idea in it.
const maxLines = 800

func TestFilesStayReadable(t *testing.T) {
	for _, file := range goFiles(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "\n"); n > maxLines && !generated(string(data)) {
			t.Errorf("%s has %d lines, want at most %d", file, n, maxLines)
		}
	}
}

func generated(text string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "// Code generated ") {
			return true
		}
		if strings.HasPrefix(line, "package ") {
			return false
		}
	}
	return false
}

// TestOnlyRunStartsGoroutines checks that go statements stand in internal/run
// alone, so that every goroutine has an owner.
func TestOnlyRunStartsGoroutines(t *testing.T) {
	for _, file := range goFiles(t) {
		if strings.HasPrefix(file, "internal/run/") || strings.HasPrefix(file, "test/") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(data)) {
			n++
			if s := strings.TrimSpace(line); strings.HasPrefix(s, "go func(") || strings.HasPrefix(s, "go ") && strings.HasSuffix(s, ")") && !strings.Contains(s, "\"") {
				t.Errorf("%s:%d starts a goroutine; use internal/run", file, n)
			}
		}
	}
}

// goFiles returns the Go files that are not tests.
func goFiles(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(goFilesAndTests(t), func(p string) bool { return strings.HasSuffix(p, "_test.go") })
}

// goFilesAndTests returns goFiles and the tests beside them.
func goFilesAndTests(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && p != "." || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case strings.HasSuffix(p, ".go"):
			files = append(files, filepath.ToSlash(p))
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d Go files: %v", len(files), err)
	}
	return files
}

func keys(m map[string]bool) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}
