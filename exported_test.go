package spillway_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The root is read by everyone, so it stays small: at most 30 names is the aim, 40 the end.
func TestRootStaysSmall(t *testing.T) {
	var names []string
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			names = append(names, exported(d)...)
		}
	}
	if len(names) > 30 {
		t.Logf("%d exported names, the aim is 30: %v", len(names), names)
	}
	require.LessOrEqual(t, len(names), 40, "%v", names)
	require.Subset(t, names, []string{"Policy", "New", "ErrRejected", "Success"}, "the count must see types, functions, variables and constants")
}

// exported returns the names that a declaration exports, without methods.
func exported(d ast.Decl) []string {
	var idents []*ast.Ident
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			idents = append(idents, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				idents = append(idents, s.Name)
			case *ast.ValueSpec:
				idents = append(idents, s.Names...)
			}
		}
	}
	var names []string
	for _, id := range idents {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	return names
}

// mostNames is how many names each package may export: types, functions, methods, variables and constants, without fields and
// promoted methods. A package that is not listed may export 40. Lower a number when you remove names.
var mostNames = map[string]int{
	".":                   41, // Gate.Metrics
	"adaptive":            23, // Check
	"breaker":             51, // Check, three times
	"cluster":             20, // Rules
	"cluster/exact":       38, // Check
	"cluster/lease":       18, // Check
	"cluster/lock":        25, // Check
	"console":             6,  // Control
	"deadline":            9,
	"limiter":             80, // Check, a Rate as text, Fair
	"middleware/grpcgate": 29, // NewPriority and its options
	"middleware/httpgate": 52, // NewPriority and its options, Retry
	"policytest":          3,
	"shadow":              9,  // Metrics
	"rules":               29, // a Stage is 3
	"rules/yaml":          1,
	"shedder":             35, // Metrics, Check, Queues, Cost, Learnt and Resume
	"sim":                 28,
	"stats":               69, // the feed: what an exporter reads is 15 names, once for all policies; the log of all policies is 3
	"topkeys":             7,
}

// A reader has to choose among all exported names of a package, so their number is a cost.
func TestExportedNames(t *testing.T) {
	counts, sum := map[string]int{}, 0
	for _, file := range goFiles(t) {
		folder := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || slices.ContainsFunc([]string{"bench", "examples", "internal", "lab"}, func(part string) bool {
			return slices.Contains(strings.Split(folder, "/"), part)
		}) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			counts[folder] += len(exported(d)) + exportedMethods(d)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(counts)) {
		most, listed := mostNames[folder]
		if !listed {
			most = 40
		}
		t.Logf("%-22s %3d of %3d", folder, counts[folder], most)
		assert.LessOrEqual(t, counts[folder], most, "names that %s exports", folder)
		if folder != "sim" && folder != "policytest" {
			sum += counts[folder]
		}
	}
	t.Logf("%d without sim and policytest", sum)
	require.Positive(t, counts["limiter"])
}

// exportedMethods counts the exported methods that a declaration adds to an exported type. Methods of types
// that are not exported do not count, since they can only be promoted.
func exportedMethods(d ast.Decl) (n int) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && d.Name.IsExported() && ast.IsExported(receiver(d.Recv.List[0].Type)) {
			n++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			s, ok := spec.(*ast.TypeSpec)
			if !ok || !s.Name.IsExported() {
				continue
			}
			if i, ok := s.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					n += len(slices.DeleteFunc(slices.Clone(m.Names), func(id *ast.Ident) bool { return !id.IsExported() }))
				}
			}
		}
	}
	return n
}

// receiver returns the name of the type of a method.
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
