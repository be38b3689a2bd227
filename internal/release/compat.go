package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// broken lists the releases whose modules need not build with the present root, each with the reason. Only before 1.0 may there be one.
var broken = map[string]string{}

// compat builds the other modules of the last release with the root of this tree, since users may update the root alone. It works in dir,
// and says on out what it found.
func (t *tree) compat(dir string, broken map[string]string, out io.Writer) error {
	if !repository(t.root) {
		fmt.Fprintln(out, "ok no releases are known: this is not a repository")
		return nil
	}
	tags, err := program(t.root, nil, "git", "tag", "--list", "v*")
	if err != nil {
		return err
	}
	version := lastRelease(strings.Fields(tags))
	if version == "" {
		fmt.Fprintln(out, "ok no release is tagged yet, so no module can be incompatible with this root")
		return nil
	}
	clone := filepath.Join(dir, "released")
	if _, err := program(dir, nil, "git", "clone", "--quiet", "--branch", version, t.root, clone); err != nil {
		return err
	}
	old, err := open(clone)
	if err != nil {
		return err
	}
	var bad []error
	for _, m := range old.modules {
		if m.folder == "." {
			continue
		}
		if err := old.buildWith(t, m); err != nil {
			bad = append(bad, fmt.Errorf("%s %s does not build with this root: %w", m.path, version, err))
			continue
		}
		fmt.Fprintln(out, "ok", m.path, version, "builds with this root")
	}
	if why, ok := broken[version]; ok && len(bad) > 0 {
		fmt.Fprintf(out, "ok %d modules of %s do not build with this root: %s\n", len(bad), version, why)
		return nil
	}
	return errors.Join(bad...)
}

// lastRelease returns the greatest version, without candidates, or "".
func lastRelease(tags []string) string {
	tags = slices.DeleteFunc(slices.Clone(tags), func(v string) bool { return semver.Canonical(v) != v || semver.Prerelease(v) != "" })
	if len(tags) == 0 {
		return ""
	}
	return slices.MaxFunc(tags, semver.Compare)
}

// buildWith builds and vets a module of t, without its tests, which users do not build. The root is that of another tree, the other
// modules are those of t.
func (t *tree) buildWith(root *tree, m module) error {
	folder := t.at(m.folder)
	edit := []string{"mod", "edit", "-replace=" + base + "=" + root.root}
	for _, other := range t.modules {
		if other.folder != "." && other != m {
			edit = append(edit, "-replace="+other.path+"="+t.at(other.folder))
		}
	}
	for _, f := range t.files {
		if strings.HasPrefix(f, m.folder+"/") && strings.HasSuffix(f, "_test.go") {
			if err := os.Remove(t.at(f)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod"}
	for _, args := range [][]string{edit, {"build", "./..."}, {"vet", "./..."}} {
		if _, err := command(folder, env, args...); err != nil {
			return err
		}
	}
	return nil
}
