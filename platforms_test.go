package sampan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// platforms are the systems that the program is built for, beside the one of the test, as GOOS/GOARCH and tags.
var platforms = []struct{ goos, goarch, tags string }{
	{"linux", "arm64", "embed"},
	// On Linux, what other systems have in the place of system calls, and libraries in the place of packages.
	{"linux", "amd64", "portable,libraryh2,libraryspdy"},
	{"darwin", "arm64", ""},
	{"windows", "amd64", ""}, // commands for objects only
}

// TestPlatforms checks the types of the program and of all that is linked into it for each platform, from source: that takes a
// few seconds, where a build for all of them takes a quarter of an hour. Function bodies are checked in packages of ours only.
func TestPlatforms(t *testing.T) {
	if testing.Short() {
		t.Skip("checks a thousand packages for each platform")
	}
	for _, p := range platforms {
		t.Run(p.goos+"-"+p.goarch+"-"+p.tags, func(t *testing.T) {
			for _, err := range checkProgram(t, p.goos, p.goarch, p.tags) {
				t.Error(err)
			}
		})
	}
}

// A linkedPackage is a package that is linked into the program, as `go list` prints it.
type linkedPackage struct {
	ImportPath, Dir  string
	GoFiles, Imports []string
	ImportMap        map[string]string
	Module           *struct{ Path, GoVersion string }
	Error            *struct{ Err string }

	checked chan struct{} // closed when types is set
	types   *types.Package
}

// checkProgram returns the errors of types of the program for a platform.
func checkProgram(t *testing.T, goos, goarch, tags string) (errs []error) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-e",
		"-json=ImportPath,Dir,GoFiles,Imports,ImportMap,Module,Error", "-tags="+tags, "./cmd/sampan")
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	list.Stderr = t.Output()
	out, err := list.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Start(); err != nil {
		t.Fatal(err)
	}
	all := map[string]*linkedPackage{}
	for in := json.NewDecoder(out); ; {
		p := &linkedPackage{checked: make(chan struct{})}
		if err := in.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
	if err := list.Wait(); err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var mu sync.Mutex
	report := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	turns := make(chan struct{}, runtime.GOMAXPROCS(0)) // as many packages at a time
	var working sync.WaitGroup
	for _, p := range all {
		working.Go(func() {
			defer close(p.checked)
			for _, path := range p.Imports {
				if d := all[p.mapped(path)]; d != nil {
					<-d.checked
				}
			}
			turns <- struct{}{}
			defer func() { <-turns }()
			p.check(fset, goarch, all, report)
		})
	}
	working.Wait()
	return errs
}

// mapped returns the package that an import means: of the standard library it may be a vendored one.
func (p *linkedPackage) mapped(path string) string {
	if to := p.ImportMap[path]; to != "" {
		return to
	}
	return path
}

// check sets the types of a package whose imports are checked.
func (p *linkedPackage) check(fset *token.FileSet, goarch string, all map[string]*linkedPackage, report func(error)) {
	if p.ImportPath == "unsafe" {
		p.types = types.Unsafe
		return
	}
	if p.Error != nil {
		report(fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err))
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			report(err)
			return
		}
		files = append(files, file)
	}
	conf := types.Config{
		Importer: importer(func(path string) (*types.Package, error) {
			d := all[p.mapped(path)]
			if d == nil || d.types == nil {
				return nil, fmt.Errorf("package %s is not there", path)
			}
			return d.types, nil
		}),
		Sizes: types.SizesFor("gc", goarch), Error: report,
		IgnoreFuncBodies: p.Module == nil || !strings.HasPrefix(p.Module.Path, module),
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		conf.GoVersion = "go" + p.Module.GoVersion
	}
	p.types, _ = conf.Check(p.ImportPath, fset, files, nil) // errors are reported
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }

// TestPlatformsPage expects rows in docs/internals/platforms.md for the packages with files for other systems than
// Linux, and no others, and a list of those of which the tag portable builds none for Linux.
func TestPlatformsPage(t *testing.T) {
	page, err := os.ReadFile("docs/internals/platforms.md")
	if err != nil {
		t.Fatal(err)
	}
	portable := map[string]bool{} // by package with a file for other systems
	err = filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		expr, err := constraint.Parse(strings.SplitN(buildLine(text), "\n", 2)[0])
		if err != nil {
			expr = nil // no constraint
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		if builds(path, expr, "windows") != builds(path, expr, "linux") || builds(path, expr, "darwin") != builds(path, expr, "linux") {
			portable[pkg] = portable[pkg] || strings.Contains(buildLine(text), "portable")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), " |"); ok && strings.HasPrefix(line, "| `") {
			for pkg := range strings.SplitSeq(strings.ReplaceAll(first, "`", ""), ", ") {
				rows[pkg] = true
			}
		}
	}
	_, without, _ := strings.Cut(string(page), "Without such a file are")
	without, _, _ = strings.Cut(without, "\n\n")
	for pkg, covered := range portable {
		if !rows[pkg] {
			t.Errorf("docs/internals/platforms.md has no row for the package %s", pkg)
		}
		if listed := strings.Contains(without, "`"+pkg+"`"); listed == covered {
			t.Errorf("docs/internals/platforms.md: %s is in the list of packages without a file for the tag portable: %t, want %t", pkg, listed, !covered)
		}
	}
	for pkg := range rows {
		if _, ok := portable[pkg]; !ok {
			t.Errorf("docs/internals/platforms.md has a row for %s, which has no file for other systems", pkg)
		}
	}
}

// buildLine returns the text of a file from its build constraint on; empty if it has none.
func buildLine(text []byte) string {
	before, _, _ := strings.Cut(string(text), "\npackage ")
	if i := strings.Index(before, "//go:build "); i >= 0 {
		return before[i:]
	}
	return ""
}

// builds reports whether a file is built for a system, by its name and its constraint.
func builds(path string, expr constraint.Expr, goos string) bool {
	name := strings.TrimSuffix(filepath.Base(path), ".go")
	for _, other := range []string{"linux", "darwin", "windows"} {
		if strings.HasSuffix(name, "_"+other) && other != goos {
			return false
		}
	}
	return expr == nil || expr.Eval(func(tag string) bool { return tag == goos || tag == "unix" && goos != "windows" })
}
