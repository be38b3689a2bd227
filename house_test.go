package spillway_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	"internal/pages":      0, // for tests and doccheck
	"internal/places":     0,
	"internal/race":       0,
	"internal/splitmix":   0,
	"internal/roundup":    0,
	"internal/stripe":     0,
	"internal/usage":      0, // for programs
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
	"internal/doccheck":   2, // a program
	"internal/release":    0, // a program
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
	"gateway/":            4, // each folder in it is a room
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

// outside lists the modules that go.work does not list, because their dependencies are large or need a newer Go. The step gateways
// of .ci/run tests them.
var outside = []string{"gateway/caddy", "gateway/envoyrls"}

// A module that neither go.work nor outside lists is tested by nobody.
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
	listed := slices.Clone(outside)
	for _, u := range work.Use {
		listed = append(listed, path.Clean(u.DiskPath))
	}
	script, err := os.ReadFile(".ci/run")
	require.NoError(t, err)
	for _, m := range outside {
		require.Contains(t, string(script), m)
		require.FileExists(t, path.Join(m, "go.mod"))
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
