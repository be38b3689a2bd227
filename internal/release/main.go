// Release rehearses a release of all modules, without publishing anything: it packs each of them as it would be tagged, serves them
// from a folder, and gets, builds and installs them as users do.
//
//	go run ./internal/release                    with a version of its own
//	go run ./internal/release -version v0.1.0 -write   puts the version into the go.mod files, before the tags are made
//
// All modules have the same version and are tagged on one commit: v0.1.0, cluster/v0.1.0, cmd/spillwayd/v0.1.0 and so on. On that
// commit they require each other by that version, and have no replace directives, which "go install" refuses.
package main

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// base is the path of the root module.
const base = "github.com/spillway-go/spillway"

func main() {
	version := flag.String("version", "", "the `version`; without -write, one of the present time is enough")
	write := flag.Bool("write", false, "write the version into the go.mod files of this tree, and end")
	flag.Parse()
	if err := run(*version, *write); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version string, write bool) error {
	modules, err := released()
	if err != nil {
		return err
	}
	if write {
		if version == "" {
			return errors.New("-write needs -version")
		}
		for _, m := range modules {
			if err := pin(m.folder, version, modules); err != nil {
				return err
			}
		}
		return nil
	}
	if version == "" {
		version = "v0.0.0-" + time.Now().UTC().Format("20060102150405") + "-000000000000"
	}
	dir, err := os.MkdirTemp("", "spillway-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := rehearsal{version: version, dir: dir, modules: modules}
	defer r.forget()
	return r.play()
}

// A module is one that is released.
type module struct {
	folder string // "." for the root
	path   string
	files  []string
}

// released returns the modules of the tree that others use.
func released() ([]*module, error) {
	files, err := tree()
	if err != nil {
		return nil, err
	}
	var modules []*module
	for _, f := range files {
		if path.Base(f) != "go.mod" || slices.Contains([]string{"bench", "examples", "lab"}, path.Dir(f)) {
			continue
		}
		m := &module{folder: path.Dir(f), path: path.Join(base, path.Dir(f))}
		modules = append(modules, m)
	}
	var folders []string // of all modules, the longest first
	for _, f := range files {
		if path.Base(f) == "go.mod" {
			folders = append(folders, path.Dir(f))
		}
	}
	slices.SortFunc(folders, func(a, b string) int { return len(b) - len(a) })
	for _, f := range files {
		i := slices.IndexFunc(folders, func(folder string) bool { return folder == "." || strings.HasPrefix(f, folder+"/") })
		for _, m := range modules {
			if m.folder == folders[i] {
				m.files = append(m.files, f)
			}
		}
	}
	return modules, nil
}

// tree returns the files below this folder, without hidden folders. A checkout without git has the same.
func tree() (files []string, err error) {
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.Type().IsRegular():
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// pin lets the module in a folder require the others by version.
func pin(folder, version string, modules []*module) error {
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
		if slices.ContainsFunc(modules, func(m *module) bool { return m.path == r.Path }) {
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

// A rehearsal serves the modules from a folder.
type rehearsal struct {
	version, dir string
	modules      []*module
}

func (r *rehearsal) play() error {
	for _, m := range r.modules {
		if err := r.pack(m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	for _, m := range r.modules {
		if err := r.use(m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		fmt.Fprintln(os.Stdout, "ok", m.path)
	}
	return nil
}

// pack writes what a proxy serves for m.
func (r *rehearsal) pack(m *module) error {
	work := filepath.Join(r.dir, "work", filepath.FromSlash(m.folder))
	if err := os.MkdirAll(work, 0o750); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(m.folder, "go.mod"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "go.mod"), text, 0o600); err != nil {
		return err
	}
	if err := pin(work, r.version, r.modules); err != nil {
		return err
	}
	if text, err = os.ReadFile(filepath.Join(work, "go.mod")); err != nil {
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
	return errors.Join(r.zip(f, m, text), f.Close())
}

// zip writes the files of m, with the given go.mod, and the license, which the go command takes from the root.
func (r *rehearsal) zip(to io.Writer, m *module, mod []byte) error {
	z := zip.NewWriter(to)
	add := func(name string, text []byte) error {
		w, err := z.Create(m.path + "@" + r.version + "/" + name)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	files := m.files
	if !slices.Contains(files, path.Join(m.folder, "LICENSE")) {
		files = append(slices.Clone(files), "LICENSE")
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.FromSlash(f))
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(f, m.folder+"/")
		if name == "go.mod" {
			text = mod
		}
		if err := add(name, text); err != nil {
			return err
		}
	}
	return z.Close()
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
func (r *rehearsal) use(m *module) error {
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
	for _, m := range r.modules {
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

// command runs the go command in a folder and returns its output. The error has what it wrote to the standard error.
func command(dir string, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}
