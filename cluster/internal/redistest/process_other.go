//go:build !linux

package redistest

import "os/exec"

// DiesWithParent reports whether servers and children end with this process even when it is killed. Here they do not.
const DiesWithParent = false

// dieWithParent does nothing.
func dieWithParent(*exec.Cmd) {}
