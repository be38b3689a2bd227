//go:build !linux

package overload

import (
	"errors"
	"time"
)

// A Cgroup is a control group with a CPU quota. It is made on Linux only, and needs the rights to do so.
type Cgroup struct{}

// NewCgroup makes a control group whose processes may use quota CPUs together. Its name ends with the id of this process.
// The error says why it could not be made.
func NewCgroup(string, float64) (*Cgroup, error) {
	return nil, errors.New("control groups are a Linux feature")
}

// Add moves a process into the group.
func (*Cgroup) Add(int) error { return errors.ErrUnsupported }

// Processes returns the ids of the processes in the group.
func (*Cgroup) Processes() ([]int, error) { return nil, errors.ErrUnsupported }

// CPUTime returns how much CPU the processes of the group have used so far.
func (*Cgroup) CPUTime() (time.Duration, error) { return 0, errors.ErrUnsupported }

// Remove deletes the group. A nil Cgroup has nothing to delete.
func (*Cgroup) Remove() {}
