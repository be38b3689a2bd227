package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// errSkip is the reason why this machine cannot run the measurement.
var errSkip = errors.New("SKIPPED")

// programs returns the folder with initdb and postgres, after it has installed them if they are not there.
func programs(ctx context.Context) (string, error) {
	if dir := installed(); dir != "" {
		return dir, nil
	}
	if os.Getuid() != 0 {
		return "", fmt.Errorf("%w: there is no PostgreSQL, and installing it takes root", errSkip)
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return "", fmt.Errorf("%w: there is no PostgreSQL, and no apt-get to install it with", errSkip)
	}
	fmt.Println("installing PostgreSQL")
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-y", "-qq", "--no-install-recommends", "postgresql"}} {
		cmd := exec.CommandContext(ctx, apt, slices.Concat([]string{"-o", "DPkg::Lock::Timeout=120"}, args)...)
		// In run level 1 the package does not start its own server.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: apt-get %s: %w: %s", errSkip, args[0], err, out[max(0, len(out)-400):])
		}
	}
	if dir := installed(); dir != "" {
		return dir, nil
	}
	return "", fmt.Errorf("%w: the package postgresql brought no postgres", errSkip)
}

// installed returns the folder with the newest postgres, or "". Debian keeps them apart by version, and outside PATH.
func installed() string {
	if all, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); err == nil && len(all) > 0 {
		return filepath.Dir(slices.Max(all))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	return ""
}
