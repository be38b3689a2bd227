package pages

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// changelog is the page whose prose nobody checks: it is a list of names.
const changelog = "CHANGELOG.md"

// A Tree is a checkout of the repository with all its modules. Its methods may be called concurrently.
type Tree struct {
	Root string // the folder of README.md
}

// A Page is one Markdown file.
type Page struct {
	Name string // with slashes, from the root
	Text string // with "\n" between the lines
}

// Pages returns the Markdown files of the tree, outside testdata and hidden folders, in the order of their names.
func (t Tree) Pages() ([]Page, error) {
	names, err := t.files(".md")
	if err != nil {
		return nil, err
	}
	all := make([]Page, 0, len(names))
	for _, name := range names {
		text, err := t.read(name)
		if err != nil {
			return nil, err
		}
		all = append(all, Page{Name: name, Text: text})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("pages: there are no pages in %q", t.Root)
	}
	return all, nil
}

func (t Tree) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(name)))
	return strings.ReplaceAll(string(text), "\r\n", "\n"), err
}

// files returns the names of all files with an ending, as the go command sees the tree.
func (t Tree) files(ending string) ([]string, error) {
	var found []string
	err := fs.WalkDir(os.DirFS(t.Root), ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case name == ".":
		case base == "testdata", base == "node_modules", base[0] == '.', base[0] == '_':
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir() && strings.HasSuffix(base, ending):
			found = append(found, name)
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}
