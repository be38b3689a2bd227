//go:build !linux

package main

import (
	"fmt"
	"time"
)

func (*child) cpu() (time.Duration, error) { return 0, fmt.Errorf("%w: needs Linux", errSkip) }
