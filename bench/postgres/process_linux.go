package main

import (
	"errors"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
)

// runAs is the account under which PostgreSQL runs where this program runs as root, which PostgreSQL refuses.
const runAs = "postgres"

// An account is the user and group of a process. The zero account is that of this process.
type account struct{ uid, gid uint32 }

func databaseAccount() (account, error) {
	if syscall.Getuid() != 0 {
		return account{}, nil
	}
	u, err := user.Lookup(runAs)
	if err != nil {
		return account{}, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return account{uint32(uid), uint32(gid)}, err
}

// own prepares cmd to run as a, in a separate process group, so that a terminal's SIGINT does not reach it, and to die
// with the thread that starts it.
func own(cmd *exec.Cmd, a account) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if a != (account{}) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

// keep starts cmd and returns a channel that is closed when cmd has ended; then its ProcessState is set. The thread
// lives as long as cmd, since the kernel kills cmd with it.
func keep(cmd *exec.Cmd) (<-chan struct{}, error) {
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState says the same
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return ended, nil
}

// Signals for processes of the database.
const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
	sigFast = syscall.SIGINT  // a postmaster ends its sessions, writes a checkpoint and exits
	sigQuit = syscall.SIGQUIT // a postmaster exits at once
	sigKill = syscall.SIGKILL
)

// tell sends a signal to a process. A process that has already ended is not an error.
func tell(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
