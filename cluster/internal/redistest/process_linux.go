package redistest

import (
	"os/exec"
	"syscall"
)

// DiesWithParent reports that servers and children end with this process even when it is killed.
const DiesWithParent = true

// dieWithParent makes the kernel kill the process when this one dies, however it dies.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
