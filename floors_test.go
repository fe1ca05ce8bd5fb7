package sampan_test

import (
	"bufio"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sampan-io/sampan"

// floors is what the block in ARCHITECTURE.md says. A pattern is a package path
// below the module; "a/*" stands for the packages directly below a.
type floors struct {
	patterns []string       // in the order of the block
	floor    map[string]int // by pattern
	allow    [][2]string    // same floor, from -> to
	wall     [][2]string    // never, however many floors apart
	extern   [][2]string    // never linked: package prefix, and who may all the same ("" is nobody)
}

// readFloors reads the first ```text block after the heading "Floors".
func readFloors(t *testing.T) floors {
	t.Helper()
	data, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "## Floors")
	_, rest, ok2 := strings.Cut(rest, "```text\n")
	block, _, ok3 := strings.Cut(rest, "```")
	if !ok || !ok2 || !ok3 {
		t.Fatal("ARCHITECTURE.md has no block of floors")
	}
	f := floors{floor: map[string]int{}}
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
			if words[0] == "floor" {
				if level, err = strconv.Atoi(words[1]); err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
				words = words[3:] // floor N name
			}
			for _, w := range words {
				f.patterns = append(f.patterns, w)
				f.floor[w] = level
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

// of returns the floor of a package.
func (f floors) of(pkg string) (int, bool) {
	for _, p := range f.patterns {
		if matches(p, pkg) {
			return f.floor[p], true
		}
	}
	return 0, false
}

func any2(pairs [][2]string, from, to string) bool {
	return slices.ContainsFunc(pairs, func(p [2]string) bool { return matches(p[0], from) && matches(p[1], to) })
}

// verdict says why from, a package of ours, may not import to, or "".
func (f floors) verdict(from, to string) string {
	rel, ours := strings.CutPrefix(to, module+"/")
	if !ours {
		for _, e := range f.extern {
			if (to == e[0] || strings.HasPrefix(to, e[0]+"/")) && matches(e[1], from) {
				return "is never linked into the product"
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
		return "is on no floor"
	case any2(f.wall, from, rel):
		return "is behind a wall"
	case lower > upper:
		return fmt.Sprintf("is on floor %d, above floor %d", lower, upper)
	case lower == upper && !any2(f.allow, from, rel):
		return fmt.Sprintf("is on the same floor %d and not allowed", lower)
	}
	return ""
}

// isKit reports whether a package is a kit for tests, which may use anything.
func isKit(pkg string) bool { return strings.HasSuffix(pkg, "test") }

// TestFloors checks that imports point down, keep to the walls, and that every
// package stands on a floor and says in its doc what it is.
func TestFloors(t *testing.T) {
	f := readFloors(t)
	seen := map[string]bool{}
	documented := map[string]bool{}
	for _, file := range goFiles(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		if pkg == "." || strings.HasPrefix(pkg, "test/") || pkg == "clustertest" || isKit(pkg) {
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
		}
	}
	for pkg := range seen {
		if _, ok := f.of(pkg); !ok {
			t.Errorf("package %s is on no floor; add it to ARCHITECTURE.md", pkg)
		}
		if !documented[pkg] {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
	for _, p := range f.patterns {
		if !slices.ContainsFunc(keys(seen), func(pkg string) bool { return matches(p, pkg) }) {
			t.Errorf("ARCHITECTURE.md puts %s on floor %d, but there is no such package", p, f.floor[p])
		}
	}
}

// TestTheTableNamesEveryPackageOnce checks the table of packages in ARCHITECTURE.md.
func TestTheTableNamesEveryPackageOnce(t *testing.T) {
	data, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(data), "| package | one line |\n")
	table, _, ok2 := strings.Cut(table, "\n\n")
	if !ok || !ok2 {
		t.Fatal("ARCHITECTURE.md has no table of packages")
	}
	named := map[string]int{}
	for row := range strings.Lines(table) {
		names, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for i, name := range strings.Split(names, "`") {
			if i%2 == 1 {
				named[name]++
			}
		}
	}
	there := map[string]bool{}
	for _, file := range goFiles(t) {
		if pkg := path.Dir(file); pkg != "." {
			there[pkg] = true
		}
	}
	for pkg := range there {
		if named[pkg] != 1 {
			t.Errorf("the table in ARCHITECTURE.md names package %s %d times, want once", pkg, named[pkg])
		}
	}
	for name := range named {
		if !there[name] {
			t.Errorf("the table in ARCHITECTURE.md names %s, but there is no such package", name)
		}
	}
}

// TestTheFloorsCatchABreach makes sure that the test above can fail.
func TestTheFloorsCatchABreach(t *testing.T) {
	f := readFloors(t)
	tests := []struct{ from, to, why string }{
		{"scheduler", module + "/store", "wall"},
		{"store", module + "/apiserver", "above"},
		{"apiserver", module + "/client", "wall"},
		{"cli", module + "/cluster", "wall"},
		{"runtime/image", module + "/client", "wall"},
		{"node", module + "/proxy", "same floor"},
		{"client", "k8s.io/client-go/kubernetes", "never linked"},
		{"proxy", module + "/client/clienttest", "kit"},
		{"proxy", module + "/nowhere", "no floor"},
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
	var files []string
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && p != "." || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go"):
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
