package spillway_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The exported API of all packages that others can import is in testdata/api.txt, so that a change of it is seen in review.
func TestAPI(t *testing.T) {
	lines := map[string][]string{} // by package
	for _, file := range goFiles(t) {
		folder := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || !importable(folder) {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		if f.Name.Name == "main" {
			continue
		}
		for _, d := range f.Decls {
			lines[folder] = append(lines[folder], api(t, fset, d)...)
		}
	}
	require.Greater(t, len(lines), 20)
	var all []string
	for folder, api := range lines {
		for _, line := range api {
			all = append(all, folder+"\t"+line+"\n")
		}
	}
	slices.Sort(all)
	all = slices.Compact(all) // a file for each system declares the same
	golden(t, "testdata/api.txt", strings.Join(all, ""), "the API has changed: run with -update if that is meant, and say it in CHANGELOG.md")
}

// importable reports whether users can import the package in a folder. Programs, and what serves them only, are not listed.
func importable(folder string) bool {
	parts := strings.Split(folder, "/")
	return !slices.Contains(parts, "internal") && !slices.Contains([]string{"bench", "cmd", "docs", "examples", "lab"}, parts[0])
}

// api returns the lines of a declaration: one for each function, method, constant, variable, type, and exported field or method
// of a type.
func api(t *testing.T, fset *token.FileSet, d ast.Decl) (lines []string) {
	t.Helper()
	text := func(n any) string {
		var b bytes.Buffer
		require.NoError(t, printer.Fprint(&b, fset, n))
		return strings.Join(strings.Fields(b.String()), " ")
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
			lines = append(lines, text(&ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type}))
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						lines = append(lines, d.Tok.String()+" "+name.Name)
					}
				}
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					lines = append(lines, typeLines(s, text)...)
				}
			}
		}
	}
	return lines
}

func typeLines(s *ast.TypeSpec, text func(any) string) (lines []string) {
	name := s.Name.Name
	var (
		kind   string
		fields *ast.FieldList
	)
	switch of := s.Type.(type) {
	case *ast.StructType:
		kind, fields = "struct", of.Fields
	case *ast.InterfaceType:
		kind, fields = "interface", of.Methods
	default:
		kind = text(s.Type)
		if s.Assign.IsValid() {
			kind = "= " + kind
		}
	}
	if s.TypeParams != nil {
		var params []string
		for _, p := range s.TypeParams.List {
			params = append(params, text(p.Type))
		}
		kind = "[" + strings.Join(params, ", ") + "] " + kind
	}
	lines = append(lines, "type "+name+" "+kind)
	if fields == nil {
		return lines
	}
	for _, f := range fields.List {
		for _, id := range f.Names {
			if id.IsExported() {
				lines = append(lines, "type "+name+": "+id.Name+" "+text(f.Type))
			}
		}
		if len(f.Names) == 0 {
			lines = append(lines, "type "+name+": embeds "+text(f.Type))
		}
	}
	return lines
}
