package spillway_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/spillway-go/spillway"

// floors lists the rooms of the house: a folder, with all below it that has no entry of its own. A room may import the
// rooms of lower floors that are not private to others, and itself.
var floors = map[string]int{
	"internal/browser":    0, // for tests
	"internal/cgroup":     0,
	"internal/enum":       0,
	"internal/grpctext":   0,
	"internal/isnil":      0,
	"internal/name":       0,
	"internal/periodic":   0,
	"internal/places":     0,
	"internal/race":       0,
	"internal/splitmix":   0,
	"internal/roundup":    0,
	"internal/stripe":     0,
	"internal/deadline":   1,
	"internal/inflight":   1,
	"internal/waited":     1,
	"internal/feed":       1,
	"internal/orca":       1,
	"internal/tally":      1,
	"stats":               1,
	".":                   2,
	"internal/overload":   2,
	"internal/rejections": 2,
	"internal/waitlist":   2,
	"internal/priority":   2,
	"internal/report":     2, // it imports nothing; all pages of the upper floors are made of it
	"policytest":          3,
	"internal/gatetest":   3,
	"shedder":             3,
	"deadline":            3,
	"adaptive":            3,
	"console":             3,
	"rules":               3,
	"shadow":              3,
	"topkeys":             3,
	"breaker":             3,
	"limiter":             3,
	"cluster":             3,
	"middleware/":         3, // each folder in it is a room
	"telemetry/":          3,
	"sim":                 4,
	"bench":               4,
	"cmd":                 4,
	"examples":            4,
	"lab":                 4,
}

// sideways lists the imports between rooms of one floor that are meant.
var sideways = map[string][]string{
	"internal/tally":      {"stats"},              // it counts by its counters
	"internal/waited":     {"stats"},              // it records a stats.Distribution
	"internal/feed":       {"stats"},              // it builds metrics
	"internal/orca":       {"stats"},              // it reads metrics
	"internal/overload":   {"."},                  // it refuses requests
	"internal/rejections": {"."},                  // it builds refusals
	"internal/waitlist":   {"."},                  // it orders requests
	"internal/priority":   {"."},                  // it reads priorities
	"cluster":             {"breaker", "limiter"}, // it is a client of Redis itself
	"rules":               {"shadow"},             // it tries numbers in one
	"console":             {"rules"},              // it shows them
	"bench":               {"sim", "lab"},         // as examples
	"examples":            {"sim", "lab"},         // programs
}

// mayRequire lists what the root module may require directly: whoever imports Spillway builds it.
var mayRequire = []string{
	"github.com/shirou/gopsutil/v3",
	"github.com/shoenig/go-m1cpu", // not imported; held at the version that starts on newer Macs
	"github.com/stretchr/testify",
	"golang.org/x/time",
}

// room returns the room that the package in a folder belongs to, and its floor.
func room(folder string) (name string, floor int, ok bool) {
	for name = folder; name != "."; name = path.Dir(name) {
		if floor, ok = floors[name]; ok {
			return name, floor, true
		}
		if floor, ok = floors[path.Dir(name)+"/"]; ok {
			return name, floor, true
		}
	}
	return folder, floors["."], folder == "."
}

func TestImportsPointDown(t *testing.T) {
	packages := importsByFolder(t)
	require.Contains(t, packages, ".")
	for folder, imports := range packages {
		from, floor, ok := room(folder)
		if !ok {
			t.Errorf("folder %s belongs to no room: enter it in floors", folder)
			continue
		}
		for _, to := range imports {
			if why := misdirected(from, floor, to); why != "" {
				t.Errorf("package %s imports %s: %s", folder, to, why)
			}
		}
	}
}

func TestMisdirected(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"stats", "internal/stripe", true},
		{"stats", ".", false},
		{".", "stats", true},
		{".", "shedder", false},
		{"shedder", ".", true},
		{"shedder/inner", "shedder", true},
		{"shedder", "policytest", false},
		{"breaker", "shedder", false},
		{"adaptive", "internal/inflight", true},
		{"adaptive", "shedder", false},
		{"cluster", "breaker", true},
		{"cluster", "shedder", false},
		{"middleware/httpgate", "limiter", false},
		{"middleware/grpcgate", "middleware/httpgate", false},
		{"middleware/httpgate/inner", "middleware/httpgate", true},
		{"telemetry/prometheus", "shedder", false},
		{"shedder", "lab", false},
		{"sim", "shedder", true},
		{"sim", "examples/overload", false},
		{"examples/overload", "middleware/httpgate", true},
		{"examples/overload", "nowhere", false},
	} {
		from, floor, ok := room(c.from)
		require.True(t, ok)
		require.Equal(t, c.allowed, misdirected(from, floor, c.to) == "", "%s imports %s", c.from, c.to)
	}
}

// misdirected says why a package of room from may not import the package in folder to, or "".
func misdirected(from string, floor int, to string) string {
	target, below, ok := room(to)
	switch {
	case !ok:
		return "it belongs to no room"
	case target == from, slices.Contains(sideways[from], target):
		return ""
	case below == floor:
		return "no room imports another of its floor"
	case below > floor:
		return "imports point down only"
	case target == "policytest" && floor < 4:
		return "it is for tests"
	}
	return ""
}

// importsByFolder returns, for each folder with Go files other than tests, the folders of this module and the modules in
// it that they import. Files for other systems count too.
func importsByFolder(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		folder := path.Dir(file)
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		found[folder] = append(found[folder], ownImports(f)...)
	}
	return found
}

func ownImports(f *ast.File) []string {
	var folders []string
	for _, spec := range f.Imports {
		name := strings.Trim(spec.Path.Value, `"`)
		if rest, ok := strings.CutPrefix(name, modulePath); ok && (rest == "" || rest[0] == '/') {
			folders = append(folders, path.Clean("./"+rest))
		}
	}
	return folders
}

// goFiles returns the Go files of the tree that the go command sees, with slashes.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch base := d.Name(); {
		case err != nil:
			return err
		case name == ".":
		case base == "testdata", base[0] == '.', base[0] == '_':
			if d.IsDir() {
				return filepath.SkipDir
			}
		case !d.IsDir() && strings.HasSuffix(base, ".go"):
			files = append(files, filepath.ToSlash(name))
		}
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func TestRootModuleStaysLight(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &mod))
	require.Empty(t, mod.Replace, "a replace in the root does not reach those who import it")
	for _, r := range mod.Require {
		if !r.Indirect {
			require.Contains(t, mayRequire, r.Path, "a module of its own is the place for what needs more")
		}
	}
}

// A module that go.work does not list is tested by nobody.
func TestEveryModuleIsInTheWorkspace(t *testing.T) {
	if _, err := os.Stat("examples/go.mod"); err != nil {
		t.Skip("the nested modules are not here: this is a downloaded module, not a checkout")
	}
	var work struct {
		Use []struct{ DiskPath string }
	}
	out, err := exec.Command("go", "work", "edit", "-json", "go.work").Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &work))
	var listed []string
	for _, u := range work.Use {
		listed = append(listed, path.Clean(u.DiskPath))
	}
	folders := map[string]bool{}
	for _, file := range goFiles(t) {
		for folder := path.Dir(file); !folders[folder]; folder = path.Dir(folder) {
			folders[folder] = true
			if _, err := os.Stat(path.Join(folder, "go.mod")); err == nil {
				require.Contains(t, listed, folder)
			}
		}
	}
}

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
	"shedder":             33, // Metrics, Check, Queues, Cost
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
