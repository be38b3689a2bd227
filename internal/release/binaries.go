package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// daemon is the package of the program that is released as a binary too.
const daemon = base + "/cmd/spillwayd"

// distribute makes the files of a release: a binary for each platform with its bill of materials, the checksums, and their signature.
// It starts from empty caches, so that nothing of this machine gets in.
func (r *rehearsal) distribute(to, key string) error {
	if err := os.MkdirAll(to, 0o750); err != nil {
		return err
	}
	if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
		return errors.Join(fmt.Errorf("%s is not an empty folder", to), err)
	}
	first, second := r.workshop("first"), r.workshop("second")
	if err := r.reproduce(platforms[0], first, second); err != nil {
		return err
	}
	for _, p := range platforms {
		binary, err := r.build(p, first)
		if err != nil {
			return err
		}
		if err := r.deliver(binary, filepath.Join(to, r.fileName(p))); err != nil {
			return fmt.Errorf("%s/%s: %w", p.goos, p.goarch, err)
		}
		fmt.Fprintln(os.Stdout, "made", r.fileName(p))
	}
	sums, err := checksums(to)
	if err != nil {
		return err
	}
	signers, err := r.signWith(key, sums)
	if err != nil {
		return err
	}
	if err := verify(sums, signers); err != nil {
		return err
	}
	if key == "" {
		fmt.Fprintln(os.Stdout, "signed with a key that is thrown away: this is a rehearsal")
	} else {
		fmt.Fprintln(os.Stdout, "signed, and valid by", publicKey)
	}
	return nil
}

// rehearseBinary makes one binary with all that belongs to it, in the ordinary cache and in empty ones. Empty caches take a minute, so
// the other platforms have to wait for the release.
func (r *rehearsal) rehearseBinary() error {
	p := platform{runtime.GOOS, runtime.GOARCH}
	env, err := r.caches()
	if err != nil {
		return err
	}
	ordinary := workshop{filepath.Join(r.dir, "ordinary"), env["GOMODCACHE"], env["GOCACHE"]}
	if err := r.reproduce(p, ordinary, r.workshop("empty")); err != nil {
		return err
	}
	to := filepath.Join(r.dir, "binary")
	if err := os.Mkdir(to, 0o750); err != nil {
		return err
	}
	binary, err := r.build(p, ordinary)
	if err != nil {
		return err
	}
	if err := r.deliver(binary, filepath.Join(to, r.fileName(p))); err != nil {
		return err
	}
	sums, err := checksums(to)
	if err != nil {
		return err
	}
	signers, err := r.signWith("", sums)
	if err != nil {
		return err
	}
	return verify(sums, signers)
}

func (r *rehearsal) fileName(p platform) string {
	name := fmt.Sprintf("spillwayd_%s_%s_%s", r.version, p.goos, p.goarch)
	if p.goos == "windows" {
		name += ".exe"
	}
	return name
}

// A workshop is where the go command builds.
type workshop struct{ gopath, modcache, gocache string }

// workshop returns one with empty caches.
func (r *rehearsal) workshop(name string) workshop {
	dir := filepath.Join(r.dir, name)
	return workshop{dir, filepath.Join(dir, "mod"), filepath.Join(dir, "cache")}
}

// build builds the daemon as users do with "go install", and returns the place of the binary.
func (r *rehearsal) build(p platform, w workshop) (string, error) {
	env := append(r.environment(), "GOENV=off", "GOBIN=", "GOPATH="+w.gopath, "GOMODCACHE="+w.modcache, "GOCACHE="+w.gocache,
		"GOOS="+p.goos, "GOARCH="+p.goarch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=-modcacherw")
	if _, err := command(r.dir, env, "install", "-trimpath", daemon+"@"+r.version); err != nil {
		return "", err
	}
	for _, dir := range []string{p.goos + "_" + p.goarch, ""} { // other platforms have a folder
		for _, name := range []string{"spillwayd", "spillwayd.exe"} {
			binary := filepath.Join(w.gopath, "bin", dir, name)
			if _, err := os.Stat(binary); err == nil {
				return binary, nil
			}
		}
	}
	return "", errors.New("go install has installed nothing")
}

// reproduce fails unless two workshops make the same binary.
func (r *rehearsal) reproduce(p platform, workshops ...workshop) error {
	var binaries [][]byte
	for _, w := range workshops {
		name, err := r.build(p, w)
		if err != nil {
			return err
		}
		binary, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		binaries = append(binaries, binary)
	}
	if !bytes.Equal(binaries[0], binaries[1]) {
		return fmt.Errorf("two builds for %s/%s differ", p.goos, p.goarch)
	}
	fmt.Fprintf(os.Stdout, "ok two builds for %s/%s are equal: %x\n", p.goos, p.goarch, sha256.Sum256(binaries[0]))
	return nil
}

// deliver checks a binary and copies it to a place, with its bill of materials beside it.
func (r *rehearsal) deliver(binary, to string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	notices, err := os.ReadFile(r.tree.at(binaryNotices))
	if err != nil {
		return err
	}
	if err := errors.Join(r.checkInfo(info), noticed(info, string(notices)), r.checkPaths(text)); err != nil {
		return err
	}
	bill, err := bom(info, text)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to+".cdx.json", bill, 0o644); err != nil { //nolint:gosec // it is public
		return err
	}
	return os.WriteFile(to, text, 0o755) //nolint:gosec // it is public, and a program
}

// checkInfo says what in a binary is not as in a release: everything has a version and a checksum, and the settings are those that
// the page about verifying names.
func (r *rehearsal) checkInfo(info *debug.BuildInfo) error {
	if info.Path != daemon || info.Main.Version != r.version {
		return fmt.Errorf("the binary is %s %s, not %s %s", info.Path, info.Main.Version, daemon, r.version)
	}
	for _, m := range append(slices.Clone(info.Deps), &info.Main) {
		if m.Replace != nil || m.Sum == "" {
			return fmt.Errorf("module %s has no checksum", m.Path)
		}
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "vcs") {
			return fmt.Errorf("the binary names a repository: %s=%s", s.Key, s.Value)
		}
		settings[s.Key] = s.Value
	}
	for key, want := range map[string]string{"-trimpath": "true", "CGO_ENABLED": "0"} {
		if settings[key] != want {
			return fmt.Errorf("the binary is built with %s=%s, not %s", key, settings[key], want)
		}
	}
	return nil
}

// noticed fails if a module of others is linked that the notices do not have.
func noticed(info *debug.BuildInfo, notices string) error {
	for _, m := range info.Deps {
		if own := (&gomod{Path: m.Path}).own(); !own && !strings.Contains(notices, "\n"+m.Path+" "+m.Version+", ") {
			return fmt.Errorf("%s does not name %s %s: go run ./internal/release -notices", binaryNotices, m.Path, m.Version)
		}
	}
	return nil
}

// checkPaths fails if the binary has a path of this machine.
func (r *rehearsal) checkPaths(binary []byte) error {
	env, err := r.caches()
	if err != nil {
		return err
	}
	root, err := filepath.Abs(r.tree.root)
	if err != nil {
		return err
	}
	for _, p := range append(slices.Collect(maps.Values(env)), root, r.dir) {
		if bytes.Contains(binary, []byte(p+"/")) {
			return fmt.Errorf("the binary names the folder %s", p)
		}
	}
	return nil
}

// caches returns the folders of the go command on this machine.
func (r *rehearsal) caches() (map[string]string, error) {
	text, err := command(r.tree.root, nil, "env", "-json", "GOMODCACHE", "GOCACHE", "GOROOT")
	if err != nil {
		return nil, err
	}
	var env map[string]string
	err = json.Unmarshal([]byte(text), &env)
	return env, err
}
