//go:build !linux

package overload

import "errors"

type cgroup struct{}

func newCgroup(float64) (*cgroup, error) {
	return nil, errors.New("control groups are a Linux feature")
}

func (*cgroup) add(int) error { return errors.ErrUnsupported }

func (*cgroup) remove() {}
