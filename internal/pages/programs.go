package pages

import (
	"fmt"
	"path"
	"strings"
)

// A Program is a block of Go in a page: "```go" to "```".
type Program struct {
	Page  string
	Line  int // of the first line of code, from 1
	Lines []string
	// Source is the Go file in which the block stands word for word, whatever its indentation; "" if there is none.
	Source string
	// Run reports whether the block is run, and not only compiled: the package of Source has tests, or the gate runs it as an
	// example, or the page has commands for the program, in a block "```console" after it.
	Run bool
}

// String returns where the program stands, as page:line.
func (p Program) String() string { return fmt.Sprintf("%s:%d", p.Page, p.Line) }

// Whole reports whether the block is a whole file.
func (p Program) Whole() bool { return len(p.Lines) > 0 && strings.HasPrefix(p.Lines[0], "package ") }

// Programs returns the blocks of Go in all pages.
func (t Tree) Programs() ([]Program, error) {
	all, err := t.Pages()
	if err != nil {
		return nil, err
	}
	var blocks []Program
	for _, page := range all {
		found, err := programsOf(page)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, found...)
	}
	return blocks, t.locate(blocks)
}

func programsOf(page Page) ([]Program, error) {
	var blocks []Program
	inside := false
	for i, line := range strings.Split(page.Text, "\n") {
		switch fence := strings.TrimSpace(line); {
		case !inside && fence == "```console" && len(blocks) > 0:
			last := &blocks[len(blocks)-1]
			last.Run = last.Run || last.Whole()
		case !inside && (fence == "```go" || strings.HasPrefix(fence, "```go ")):
			inside = true
			blocks = append(blocks, Program{Page: page.Name, Line: i + 2})
		case inside && fence == "```":
			inside = false
		case inside:
			b := &blocks[len(blocks)-1]
			b.Lines = append(b.Lines, line)
		}
	}
	if inside {
		return nil, fmt.Errorf("pages: a block of Go in %s has no end", page.Name)
	}
	return blocks, nil
}

// locate fills in Source and Run.
func (t Tree) locate(blocks []Program) error {
	files, err := t.files(".go")
	if err != nil {
		return err
	}
	gate, err := t.read(".ci/run")
	if err != nil {
		return err
	}
	run := make(map[string]bool) // folders
	for _, file := range files {
		folder := path.Dir(file)
		run[folder] = run[folder] || strings.HasSuffix(file, "_test.go") || strings.Contains(gate, "\n\t\t"+folder+" ")
	}
	for _, file := range files {
		source, err := t.read(file)
		if err != nil {
			return err
		}
		source = unindented(strings.Split(source, "\n"))
		for i := range blocks {
			b := &blocks[i]
			text := unindented(b.Lines)
			if (b.Source == "" || !b.Run) && len(text) >= 3 && strings.Contains(source, text) {
				b.Source, b.Run = file, b.Run || run[path.Dir(file)]
			}
		}
	}
	return nil
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
