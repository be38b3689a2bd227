// Release rehearses a release of all modules, without publishing anything: it packs each of them as it would be tagged, serves them
// from a folder, and gets, builds and installs them as users do.
//
//	go run ./internal/release                    with a version of its own
//	go run ./internal/release -version v0.1.0 -write   puts the version into the go.mod files, before the tags are made
//	go run ./internal/release -notices           renews the licenses of others, for the sources and for spillwayd
//
// All modules have the same version and are tagged on one commit: v0.1.0, cluster/v0.1.0, cmd/spillwayd/v0.1.0 and so on. On that
// commit they require each other by that version, and have no replace directives, which "go install" refuses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// base is the path of the root module.
const base = "github.com/spillway-go/spillway"

func main() {
	version := flag.String("version", "", "the `version`; without -write, one of the present time is enough")
	write := flag.Bool("write", false, "write the version into the go.mod files of this tree, and end")
	notices := flag.Bool("notices", false, "renew the files with the licenses of others, and end")
	flag.Parse()
	if err := run(*version, *write, *notices); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version string, write, notices bool) error {
	t, err := open(".")
	if err != nil {
		return err
	}
	if notices {
		return t.writeNotices()
	}
	if write {
		if version == "" {
			return errors.New("-write needs -version")
		}
		return t.pinAll(version)
	}
	if version == "" {
		version = "v0.0.0-" + time.Now().UTC().Format("20060102150405") + "-000000000000"
	}
	dir, err := os.MkdirTemp("", "spillway-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := rehearsal{tree: t, version: version, dir: dir}
	defer r.forget()
	return r.play()
}

// command runs the go command in a folder and returns its output. The error has what it wrote to the standard error.
func command(dir string, env []string, args ...string) (string, error) {
	return program(dir, env, "go", args...)
}

// program is command for any program.
func program(dir string, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}
