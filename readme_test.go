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
)

// A goBlock is a block of Go in a page: "```go" to "```".
type goBlock struct {
	page  string
	line  int // of the first line of code, from 1
	lines []string
}

func (b goBlock) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// program reports whether the block is a whole file.
func (b goBlock) program() bool { return len(b.lines) > 0 && strings.HasPrefix(b.lines[0], "package ") }

// Code in prose that nobody compiles is soon wrong. A whole program is compiled as it is; a fragment must stand word for
// word, whatever its indentation, in a Go file of the tree, where the compiler sees it.
func TestCodeInPagesCompiles(t *testing.T) {
	workspace := checkoutWorkspace(t)
	sources := make(map[string]string)
	for _, file := range goFiles(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		sources[file] = unindented(strings.Split(string(text), "\n"))
	}
	var programs []goBlock
	for _, b := range goBlocks(t) {
		if b.program() {
			programs = append(programs, b)
			continue
		}
		if text := unindented(b.lines); len(text) < 3 || !isIn(sources, text) {
			t.Errorf("%v: this code stands in no Go file of the tree:\n%s", b, strings.Join(b.lines, "\n"))
		}
	}
	compile(t, workspace, programs)
}

// The first page has a whole program, short, and code near the top.
func TestReadmeHasShortProgram(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(text), "\n```")
	require.True(t, ok)
	require.LessOrEqual(t, strings.Count(before, "\n")+2, 15, "line of the first code")
	for _, b := range goBlocks(t) {
		if b.page == "README.md" && b.program() {
			require.LessOrEqual(t, len(b.lines), 20, "%v: lines of the program", b)
			return
		}
	}
	t.Error("README.md has no complete program")
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

// goBlocks returns the blocks of Go in README.md and docs.
func goBlocks(t *testing.T) []goBlock {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	var blocks []goBlock
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		inside := false
		for i, line := range strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") {
			switch fence := strings.TrimSpace(line); {
			case !inside && (fence == "```go" || strings.HasPrefix(fence, "```go ")):
				inside = true
				blocks = append(blocks, goBlock{page: filepath.ToSlash(page), line: i + 2})
			case inside && fence == "```":
				inside = false
			case inside:
				b := &blocks[len(blocks)-1]
				b.lines = append(b.lines, line)
			}
		}
		require.False(t, inside, "%s: a block of Go has no end", page)
	}
	return blocks
}

// unindented returns the lines without the space around each, a newline before and after each of them.
func unindented(lines []string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for _, line := range lines {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}

func isIn(sources map[string]string, text string) bool {
	for _, source := range sources {
		if strings.Contains(source, text) {
			return true
		}
	}
	return false
}

// compile type-checks the programs, each as a package of this module that exists in an overlay only.
func compile(t *testing.T, workspace string, programs []goBlock) {
	t.Helper()
	if len(programs) == 0 {
		return
	}
	root, err := os.Getwd()
	require.NoError(t, err)
	temp := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	// List with -export compiles and does not link.
	args := []string{"list", "-export", "-overlay", filepath.Join(temp, "overlay.json")}
	for i, b := range programs {
		file := filepath.Join(temp, fmt.Sprintf("block%d.go", i))
		// The line directive makes the compiler speak of the page.
		text := fmt.Sprintf("//line %s:%d\n%s\n", b.page, b.line, strings.Join(b.lines, "\n"))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		folder := fmt.Sprintf("page_block_%d", i)
		overlay.Replace[filepath.Join(root, folder, "main.go")] = file
		args = append(args, "./"+folder)
	}
	text, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(temp, "overlay.json"), text, 0o600))
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK="+workspace)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
