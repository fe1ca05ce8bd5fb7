package sampan_test

import (
	"go/ast"
	doccomment "go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// docLink matches a link of a doc comment to an exported name: in brackets a name, a type with a member, or one of
// both after the name or the path of a package. Links to packages alone are not checked.
var docLink = regexp.MustCompile(`(?:^|[\s(])\[\*?((?:[\w.-]+/)*)((?:[a-z]\w*\.)?)([A-Z]\w*)(\.[A-Za-z]\w*)?\](?:$|[\s.,;:)?!'])`)

// majorVersion matches the end of the path of a module of version 2 or later.
var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// A documented is a folder with a package, and its tests.
type documented struct {
	names   map[string]bool   // of the package: NAME and TYPE.MEMBER
	imports map[string]string // from the names of packages to their paths
	links   []link
}

type link struct {
	at           token.Position
	pkg, name    string // pkg is empty for the package of the comment
	text, member string
}

// TestDocLinks checks that the links in comments of the product lead to names of this module. Links to names of other
// modules are not looked up.
func TestDocLinks(t *testing.T) {
	fset := token.NewFileSet()
	all := map[string]*documented{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasPrefix(d.Name(), "zz_generated"):
			return nil
		}
		parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(file))
		if all[dir] == nil {
			all[dir] = &documented{names: map[string]bool{}, imports: map[string]string{}}
		}
		all[dir].add(fset, parsed, !strings.HasSuffix(file, "_test.go"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, p := range all {
		for _, l := range p.links {
			at := p
			if l.pkg != "" {
				imported, ok := p.imports[l.pkg]
				if !ok {
					imported, ok = doccomment.DefaultLookupPackage(l.pkg)
				}
				switch {
				case !ok && strings.Contains(l.pkg, "/"):
					imported = l.pkg
				case !ok:
					t.Errorf("%s: %s: the package does not import %s: write its path", l.at, l.text, l.pkg)
					continue
				}
				dir, ours := strings.CutPrefix(imported, module+"/")
				if !ours {
					continue
				}
				if at = all[dir]; at == nil {
					t.Errorf("%s: %s: there is no package %s", l.at, l.text, imported)
					continue
				}
			}
			if checked++; !at.has(l) {
				t.Errorf("%s: %s: there is no such name", l.at, l.text)
			}
		}
	}
	if checked < 1000 {
		t.Errorf("found only %d links", checked)
	}
}

// has reports whether a package has the name of a link. Members that come from an embedded type are not looked up.
func (p *documented) has(l link) bool {
	return p.names[l.name] && (l.member == "" || p.names[l.name+l.member] || p.names[l.name+".embeds"])
}

// add adds a file to its package, with or without its links.
func (p *documented) add(fset *token.FileSet, file *ast.File, links bool) {
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(majorVersion.ReplaceAllString(imported, ""))
		name, _, _ = strings.Cut(name, "-") // the name of the package k8s.io/mount-utils is mount
		if spec.Name != nil {
			name = spec.Name.Name
		}
		p.imports[name] = imported
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			p.names[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				p.declare(spec)
			}
		}
	}
	if !links {
		return
	}
	for _, group := range file.Comments {
		for _, line := range group.List {
			if strings.HasPrefix(line.Text, "//\t") { // code
				continue
			}
			for _, m := range docLink.FindAllStringSubmatch(strings.TrimPrefix(line.Text, "//"), -1) {
				p.links = append(p.links, link{
					at: fset.Position(line.Pos()), text: strings.TrimSpace(m[0]),
					pkg: m[1] + strings.TrimSuffix(m[2], "."), name: m[3], member: m[4],
				})
			}
		}
	}
}

// declare adds the names of a type, a constant or a variable, and the members of a type.
func (p *documented) declare(spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			p.names[name.Name] = true
		}
	case *ast.TypeSpec:
		p.names[s.Name.Name] = true
		var fields *ast.FieldList
		switch of := s.Type.(type) {
		case *ast.StructType:
			fields = of.Fields
		case *ast.InterfaceType:
			fields = of.Methods
		default:
			p.names[s.Name.Name+".embeds"] = s.Assign != 0
			return
		}
		for _, f := range fields.List {
			for _, name := range f.Names {
				p.names[s.Name.Name+"."+name.Name] = true
			}
			if len(f.Names) == 0 {
				p.names[s.Name.Name+".embeds"] = true
			}
		}
	}
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
