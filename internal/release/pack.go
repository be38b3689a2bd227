package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	modpath "golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// A packed is a file of the zip of a module. It implements [modzip.File].
type packed struct {
	name string // in the zip
	at   string // where its text is
}

func (f packed) Path() string                 { return f.name }
func (f packed) Lstat() (os.FileInfo, error)  { return os.Lstat(f.at) }
func (f packed) Open() (io.ReadCloser, error) { return os.Open(f.at) }

// pack writes what a proxy serves for m.
func (r *rehearsal) pack(m module) error {
	mod, err := r.pinned(m)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(mod)
	if err != nil {
		return err
	}
	to := filepath.Join(r.dir, "proxy", filepath.FromSlash(m.path), "@v")
	if err := os.MkdirAll(to, 0o750); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version": %q, "Time": %q}`, r.version, time.Now().UTC().Format(time.RFC3339))
	for name, text := range map[string]string{"list": r.version + "\n", r.version + ".info": info, r.version + ".mod": string(text)} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(to, r.version+".zip"))
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(r.zip(f, m, mod), f.Close())
}

// pinned makes the go.mod that m has on the commit with the tags, and returns its place.
func (r *rehearsal) pinned(m module) (string, error) {
	work := filepath.Join(r.dir, "work", filepath.FromSlash(m.folder))
	if err := os.MkdirAll(work, 0o750); err != nil {
		return "", err
	}
	text, err := os.ReadFile(r.tree.at(path.Join(m.folder, "go.mod")))
	if err != nil {
		return "", err
	}
	mod := filepath.Join(work, "go.mod")
	if err := os.WriteFile(mod, text, 0o600); err != nil {
		return "", err
	}
	if err := r.tree.pin(work, r.version); err != nil || !r.final {
		return mod, err
	}
	if after, err := os.ReadFile(mod); err != nil || !bytes.Equal(after, text) {
		return mod, errors.Join(fmt.Errorf("%s/go.mod is not that of %s: see docs/releasing.md", m.folder, r.version), err)
	}
	return mod, nil
}

// zip writes the files of m, with the go.mod at another place. The rules are those of proxies: package modzip leaves out the folders
// of other modules and vendored packages, and a module without a license has that of the root.
func (r *rehearsal) zip(to io.Writer, m module, mod string) error {
	var files []modzip.File
	licensed := false
	for _, f := range r.tree.files {
		name := f
		if m.folder != "." {
			var inside bool
			if name, inside = strings.CutPrefix(f, m.folder+"/"); !inside {
				continue
			}
		}
		at := r.tree.at(f)
		if name == "go.mod" {
			at = mod
		}
		licensed = licensed || name == "LICENSE"
		files = append(files, packed{name, at})
	}
	if !licensed {
		files = append(files, packed{"LICENSE", r.tree.at("LICENSE")})
	}
	return modzip.Create(to, modpath.Version{Path: m.path, Version: r.version}, files)
}
