package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// private lists the folders of modules that are not released: programs that are run in a checkout.
var private = []string{"bench", "examples", "internal/release", "lab"}

// A tree is a checkout with all modules.
type tree struct {
	root    string
	files   []string // those that a commit of the tree would have, relative to root, with slashes
	modules []module // the released ones
}

// A module is one that is released.
type module struct {
	folder string // "." for the root
	path   string
}

// open finds the files and the modules of the tree in a folder.
func open(root string) (*tree, error) {
	files, err := filesIn(root)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, files: files}
	for _, f := range files {
		if folder := path.Dir(f); path.Base(f) == "go.mod" && !slices.Contains(private, folder) {
			t.modules = append(t.modules, module{folder, path.Join(base, folder)})
		}
	}
	return t, nil
}

// filesIn returns the files below a folder that git has or would add. Without a repository, these are all files.
func filesIn(root string) (files []string, err error) {
	if repository(root) {
		list, err := program(root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
		if err != nil {
			return nil, err
		}
		files = strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
		return slices.DeleteFunc(files, func(f string) bool {
			_, err := os.Lstat(filepath.Join(root, filepath.FromSlash(f)))
			return err != nil // deleted since the last commit
		}), nil
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return err
	})
	return files, err
}

// repository reports whether a folder is the top of a checkout that git knows.
func repository(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, ".git"))
	return err == nil
}

// at returns the place of a file of the tree.
func (t *tree) at(name string) string { return filepath.Join(t.root, filepath.FromSlash(name)) }

// checkTags fails unless this tree is the commit with the tags of a version, of all modules.
func (t *tree) checkTags(version string) error {
	changed, err := program(t.root, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the tree has changes that are in no commit:\n%s", changed)
	}
	tags, err := program(t.root, nil, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	for _, m := range t.modules {
		if tag := path.Join(m.folder, version); !slices.Contains(strings.Fields(tags), tag) {
			return fmt.Errorf("this commit has no tag %s: all modules are tagged together", tag)
		}
	}
	return nil
}

// pinAll lets all modules require each other by version.
func (t *tree) pinAll(version string) error {
	for _, m := range t.modules {
		if err := t.pin(t.at(m.folder), version); err != nil {
			return err
		}
	}
	return nil
}

// pin lets the module in a folder require the others by version, and drops its replace directives.
func (t *tree) pin(folder, version string) error {
	text, err := command(folder, []string{"GOWORK=off"}, "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var mod struct {
		Require []struct{ Path string }
		Replace []struct{ Old struct{ Path string } }
	}
	if err := json.Unmarshal([]byte(text), &mod); err != nil { //nolint:musttag // the go command names the fields so
		return err
	}
	args := []string{"mod", "edit"}
	for _, r := range mod.Require {
		if slices.ContainsFunc(t.modules, func(m module) bool { return m.path == r.Path }) {
			args = append(args, "-require="+r.Path+"@"+version)
		}
	}
	for _, r := range mod.Replace {
		args = append(args, "-dropreplace="+r.Old.Path)
	}
	if len(args) == 2 {
		return nil
	}
	_, err = command(folder, []string{"GOWORK=off"}, args...)
	return err
}
