package spillway_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/pages"
)

// Code in prose that nobody compiles is soon wrong. A whole program is compiled as it is; a fragment must stand word for
// word, whatever its indentation, in a Go file of the tree, where the compiler sees it.
func TestCodeInPagesCompiles(t *testing.T) {
	var programs []pages.Program
	for _, p := range programsInPages(t) {
		if p.Whole() {
			programs = append(programs, p)
		} else if p.Source == "" {
			t.Errorf("%v: this code stands in no Go file of the tree:\n%s", p, strings.Join(p.Lines, "\n"))
		}
	}
	compile(t, checkoutWorkspace(t), programs)
}

// The first page has a whole program, short, and code near the top.
func TestReadmeHasShortProgram(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(text), "\n```")
	require.True(t, ok)
	require.LessOrEqual(t, strings.Count(before, "\n")+2, 15, "line of the first code")
	for _, p := range programsInPages(t) {
		if p.Page == "README.md" && p.Whole() {
			require.LessOrEqual(t, len(p.Lines), 20, "%v: lines of the program", p)
			return
		}
	}
	t.Error("README.md has no complete program")
}

// programsInPages returns the blocks of Go in all pages.
func programsInPages(t *testing.T) []pages.Program {
	t.Helper()
	programs, err := checkout(t).Programs()
	require.NoError(t, err)
	require.NotEmpty(t, programs)
	return programs
}

// checkoutWorkspace returns the value of GOWORK for the whole tree, or skips where the nested modules are missing.
func checkoutWorkspace(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("examples/go.mod"); err != nil {
		t.Skip("the nested modules are not here: this is a downloaded module, not a checkout")
	}
	workspace, err := filepath.Abs("go.work")
	require.NoError(t, err)
	return workspace
}

// compile type-checks the programs, each as a package of this module that exists in an overlay only.
func compile(t *testing.T, workspace string, programs []pages.Program) {
	t.Helper()
	if len(programs) == 0 {
		return
	}
	files := make(map[string]string)
	// List with -export compiles and does not link.
	args := []string{"list", "-export"}
	for i, p := range programs {
		folder := fmt.Sprintf("page_block_%d", i)
		files[folder+"/main.go"] = goFile(p)
		args = append(args, "./"+folder)
	}
	goOverlay(t, workspace, files, args...)
}

// goFile returns the text of a program. Its line directive makes the compiler speak of the page.
func goFile(p pages.Program) string {
	return fmt.Sprintf("//line %s:%d\n%s\n", p.Page, p.Line, strings.Join(p.Lines, "\n"))
}

// goOverlay runs the go command as if the given files, named by their paths from the root, were in the tree.
func goOverlay(t *testing.T, workspace string, files map[string]string, args ...string) {
	t.Helper()
	root, err := os.Getwd()
	require.NoError(t, err)
	temp := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range files {
		file := filepath.Join(temp, strings.ReplaceAll(name, "/", "_"))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		overlay.Replace[filepath.Join(root, filepath.FromSlash(name))] = file
	}
	text, err := json.Marshal(overlay)
	require.NoError(t, err)
	place := filepath.Join(temp, "overlay.json")
	require.NoError(t, os.WriteFile(place, text, 0o600))
	cmd := exec.Command("go", append([]string{args[0], "-overlay", place}, args[1:]...)...)
	cmd.Env = append(os.Environ(), "GOWORK="+workspace)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
