package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A rehearsal serves the modules from a folder.
type rehearsal struct {
	tree         *tree
	version, dir string
	final        bool // the version is released indeed, so the tree must be prepared
}

func (r *rehearsal) play() error {
	for _, m := range r.tree.modules {
		if err := r.use(m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		fmt.Fprintln(os.Stdout, "ok", m.path)
	}
	return r.rehearseBinary()
}

func (r *rehearsal) packAll() error {
	for _, m := range r.tree.modules {
		if err := r.pack(m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return nil
}

// environment is that of a user, who has no workspace.
func (r *rehearsal) environment() []string {
	proxy := "file://" + filepath.ToSlash(filepath.Join(r.dir, "proxy"))
	if others, err := command(".", nil, "env", "GOPROXY"); err == nil {
		proxy += "," + strings.TrimSpace(others)
	}
	return []string{
		"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=" + proxy, "GONOSUMDB=" + base + "," + base + "/*", "GOBIN=" + filepath.Join(r.dir, "bin"),
	}
}

// use gets m in a new module and builds its packages there. Commands are installed too.
func (r *rehearsal) use(m module) error {
	user := filepath.Join(r.dir, "user", filepath.FromSlash(m.folder))
	if err := os.MkdirAll(user, 0o750); err != nil {
		return err
	}
	env := r.environment()
	if _, err := command(user, env, "mod", "init", "example.org/user"); err != nil {
		return err
	}
	if _, err := command(user, env, "get", m.path+"@"+r.version); err != nil {
		return err
	}
	list, err := command(user, env, "list", "-f", "{{.Name}} {{.ImportPath}}", m.path+"/...")
	if err != nil {
		return err
	}
	var imports strings.Builder
	for line := range strings.Lines(list) {
		name, pkg, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.Contains(pkg, "/internal/") || strings.HasSuffix(pkg, "/internal"):
		case name == "main":
			if _, err := command(user, env, "install", pkg+"@"+r.version); err != nil {
				return err
			}
		default:
			fmt.Fprintf(&imports, "import _ %q\n", pkg)
		}
	}
	program := "package main\n\n" + imports.String() + "\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(user, "main.go"), []byte(program), 0o600); err != nil {
		return err
	}
	if _, err := command(user, env, "get", "."); err != nil {
		return err
	}
	_, err = command(user, env, "build", "-o", os.DevNull, ".")
	return err
}

// forget removes the rehearsed version from the cache of modules.
func (r *rehearsal) forget() {
	cache, err := command(".", nil, "env", "GOMODCACHE")
	if err != nil {
		return
	}
	cache = strings.TrimSpace(cache)
	for _, m := range r.tree.modules {
		at := filepath.Join(cache, filepath.FromSlash(m.path)+"@"+r.version)
		_ = filepath.WalkDir(at, func(name string, _ fs.DirEntry, err error) error {
			if err == nil {
				err = os.Chmod(name, 0o700) //nolint:gosec // to remove it: the cache is read-only
			}
			return err
		})
		_ = os.RemoveAll(at)
		old, _ := filepath.Glob(filepath.Join(cache, "cache", "download", filepath.FromSlash(m.path), "@v", r.version+"*"))
		for _, f := range old {
			_ = os.Remove(f)
		}
	}
}
