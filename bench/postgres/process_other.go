//go:build !linux

package main

import (
	"errors"
	"os/exec"
	"syscall"
)

type account struct{ uid, gid uint32 }

func databaseAccount() (account, error) { return account{}, errors.ErrUnsupported }

func own(*exec.Cmd, account) {}

func keep(*exec.Cmd) (<-chan struct{}, error) { return nil, errors.ErrUnsupported }

const (
	sigStop = syscall.Signal(iota)
	sigCont
	sigFast
	sigQuit
	sigKill
)

func tell(int, syscall.Signal) error { return errors.ErrUnsupported }
