// Release rehearses a release of all modules, without publishing anything. It packs each of them as it would be tagged and serves them
// from a folder. Then it gets, builds and installs them as users do.
//
//	go run ./internal/release                    with a version of its own
//	go run ./internal/release -version v0.1.0 -write   puts the version into the go.mod files, before the tags are made
//	go run ./internal/release -binaries DIR      makes the binaries of spillwayd, signed with a key that is thrown away
//	go run ./internal/release -compat            builds the other modules of the last release with the present root
//	go run ./internal/release -notices           renews the licenses of others, for the sources and for spillwayd
//
// All modules have the same version and are tagged on one commit: v0.1.0, cluster/v0.1.0, cmd/spillwayd/v0.1.0 and so on. On that
// commit they require each other by that version, and have no replace directives, which "go install" refuses. docs/releasing.md has
// all steps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// base is the path of the root module.
const base = "github.com/spillway-go/spillway"

// options are the flags.
type options struct {
	version, binaries, key string
	write, notices, compat bool
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "the `version`; a rehearsal has one of the present time")
	flag.BoolVar(&o.write, "write", false, "write the version into the go.mod files of this tree, print the tags to make, and end")
	flag.BoolVar(&o.notices, "notices", false, "renew the files with the licenses of others, and end")
	flag.BoolVar(&o.compat, "compat", false, "build the other modules of the last release with the root of this tree, and end")
	flag.StringVar(&o.binaries, "binaries", "", "make the binaries of spillwayd in `folder`, and end")
	flag.StringVar(&o.key, "key", "", "with -binaries: sign them with the SSH key in `file`; a rehearsal makes a key")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (o *options) run() error {
	root, err := top()
	if err != nil {
		return err
	}
	t, err := open(root)
	if err != nil {
		return err
	}
	switch {
	case o.version == "" && (o.write || o.key != ""):
		return errors.New("-write and -key need -version")
	case o.write:
		for _, m := range t.modules {
			fmt.Fprintln(os.Stdout, path.Join(m.folder, o.version))
		}
		return t.pinAll(o.version)
	case o.notices:
		return t.writeNotices()
	case o.version == "":
		o.version = "v0.0.0-" + time.Now().UTC().Format("20060102150405") + "-000000000000"
	}
	dir, err := os.MkdirTemp("", "spillway-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.compat {
		return t.compat(dir, broken, os.Stdout)
	}
	r := rehearsal{tree: t, version: o.version, dir: dir, final: o.key != ""}
	defer r.forget()
	if r.final {
		if err := t.checkTags(r.version); err != nil {
			return err
		}
	}
	if err := r.packAll(); err != nil {
		return err
	}
	if o.binaries != "" {
		return r.distribute(o.binaries, o.key)
	}
	return r.play()
}

// top returns the top folder of the tree that this folder is in.
func top() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("this is not a checkout with all modules: go.work is missing")
		}
	}
	return "", err
}

// command runs the go command in a folder and returns its output. The error has what it wrote to the standard error.
func command(dir string, env []string, args ...string) (string, error) {
	return program(dir, env, "go", args...)
}

// program is command for any program.
func program(dir string, env []string, name string, args ...string) (string, error) {
	return execute(dir, env, nil, name, args...)
}

// execute is program with a standard input.
func execute(dir string, env []string, in io.Reader, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, append(os.Environ(), env...), in
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}
