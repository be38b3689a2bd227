package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The files with the notices: of spillwayd, which prints them, and of the sources of the root module.
const (
	binaryNotices = "cmd/spillwayd/licenses.txt"
	sourceNotices = "THIRD_PARTY_NOTICES"
)

// A platform is a system that binaries are made for.
type platform struct{ goos, goarch string }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

// notices returns the texts of all files of notices.
func (t *tree) notices() (map[string]string, error) {
	binary, err := t.licenses("cmd/spillwayd", true)
	if err != nil {
		return nil, err
	}
	source, err := t.licenses(".", false)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		binaryNotices: "The program spillwayd contains Spillway, and the following works of others. Each has its own license.\n" + binary,
		sourceNotices: "The sources of Spillway contain the following works of others. Each has its own license.\n" + source,
	}, nil
}

// writeNotices renews the files.
func (t *tree) writeNotices() error {
	texts, err := t.notices()
	if err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(t.at(name), []byte(text), 0o644); err != nil { //nolint:gosec // as all files of the tree
			return err
		}
	}
	return nil
}

// A listed is a package, as "go list" describes it.
type listed struct {
	Dir        string
	Standard   bool
	EmbedFiles []string
	Module     gomod
}

type gomod struct{ Path, Version, Dir string }

// own reports whether m is a module of this project, whose own license is not a notice.
func (m *gomod) own() bool { return m.Path == base || strings.HasPrefix(m.Path, base+"/") }

// licenses returns the licenses of what the packages of a module contain, on any platform, with cgo and without it. That is what stands
// in the folders of the module, and, if linked is set, also the other modules and the standard library.
func (t *tree) licenses(folder string, linked bool) (string, error) {
	goroot, err := command(t.root, nil, "env", "GOROOT")
	if err != nil {
		return "", err
	}
	found := make(map[string]string) // the text by its title
	for _, p := range platforms {
		for _, cgo := range []string{"0", "1"} {
			pkgs, err := t.list(folder, "GOOS="+p.goos, "GOARCH="+p.goarch, "CGO_ENABLED="+cgo)
			if err != nil {
				return "", err
			}
			for _, pkg := range pkgs {
				if pkg.Standard {
					pkg.Dir = strings.TrimSpace(goroot)
					pkg.Module = gomod{Path: "The standard library of Go", Dir: pkg.Dir}
				}
				if linked || pkg.Module.own() {
					if err := pkg.licenses(found); err != nil {
						return "", err
					}
				}
			}
		}
	}
	return merged(found), nil
}

// list returns the packages that a module links.
func (t *tree) list(folder string, env ...string) (pkgs []listed, err error) {
	text, err := command(t.at(folder), append(env, "GOWORK=off"), "list", "-deps", "-json=Dir,Standard,EmbedFiles,Module", "./...")
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var pkg listed
		if err := d.Decode(&pkg); errors.Is(err, io.EOF) { //nolint:musttag // the go command names the fields so
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, pkg)
	}
}

// licenses adds those of the package. Its files are in its own folder, and in those of what it embeds.
func (p *listed) licenses(found map[string]string) error {
	dirs := []string{p.Dir}
	for _, f := range p.EmbedFiles {
		dirs = append(dirs, filepath.Join(p.Dir, filepath.Dir(f)))
	}
	all := 0
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		n, err := p.Module.licenses(found, dir)
		if err != nil {
			return err
		}
		all += n
	}
	if all == 0 && !p.Module.own() {
		return fmt.Errorf("%s %s has no license", p.Module.Path, p.Module.Version)
	}
	return nil
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying|patents)([.-].*)?$`)

// licenses adds those in dir, and in the folders above it up to that of the module, and returns their number.
func (m *gomod) licenses(found map[string]string, dir string) (n int, err error) {
	for ; ; dir = filepath.Dir(dir) {
		below, err := filepath.Rel(m.Dir, dir)
		if err != nil || strings.HasPrefix(below, "..") || below == "." && m.own() {
			return n, err
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return n, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenseFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return n, err
			}
			title := path.Join(m.Path, filepath.ToSlash(below))
			if m.Version != "" && !m.own() {
				title += " " + m.Version
			}
			found[title+", "+e.Name()] = strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")) + "\n"
			n++
		}
	}
}

// merged returns the texts below their titles, each text once.
func merged(found map[string]string) string {
	titles := make(map[string][]string)
	for _, title := range slices.Sorted(maps.Keys(found)) {
		titles[found[title]] = append(titles[found[title]], title)
	}
	texts := slices.SortedFunc(maps.Keys(titles), func(a, b string) int { return strings.Compare(titles[a][0], titles[b][0]) })
	rule := strings.Repeat("=", 80)
	var all strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&all, "\n%s\n%s\n%s\n\n%s", rule, strings.Join(titles[text], "\n"), rule, text)
	}
	return all.String()
}
