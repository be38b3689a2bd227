package overload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// period is the span over which a quota is given out, the default of container runtimes.
const period = 100 * time.Millisecond

// A Cgroup is a control group with a CPU quota. It is made on Linux only, and needs the rights to do so.
type Cgroup struct {
	dirs  []string // to remove at the end, the first of them holds the quota
	v2    bool
	quota float64
}

// NewCgroup makes a control group whose processes may use quota CPUs together. Its name ends with the id of this process.
// The error says why it could not be made.
func NewCgroup(name string, quota float64) (*Cgroup, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	name = fmt.Sprintf("%s-%d", name, os.Getpid())
	cpu, v2 := cpuHierarchy(mounts)
	if cpu == "" {
		return nil, errors.New("no cgroup file system with a cpu controller is mounted")
	}
	g := &Cgroup{v2: v2, quota: quota}
	controllers := []string{""}
	if !v2 {
		controllers = []string{"cpu", "cpuacct"} // without cpuacct the server could not read its own usage
	}
	for _, controller := range controllers {
		dir, err := g.make(mountOf(mounts, controller), ownPath(own, controller), name)
		if err != nil {
			g.Remove()
			return nil, err
		}
		if len(g.dirs) == 0 || g.dirs[0] != dir {
			g.dirs = append(g.dirs, dir)
		}
	}
	if err := g.setQuota(); err != nil {
		g.Remove()
		return nil, err
	}
	return g, nil
}

// make creates a group below the group of this process or, where that is not allowed, beside it.
func (g *Cgroup) make(mount, path, name string) (string, error) {
	if mount == "" {
		return "", errors.New("no cgroup file system with a cpuacct controller is mounted")
	}
	var failed error
	for _, parent := range []string{path, filepath.Dir(path), "/"} {
		dir := filepath.Join(mount, parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			failed = err
			continue
		}
		if !g.v2 {
			return dir, nil
		}
		if _, failed = os.Stat(filepath.Join(dir, "cpu.max")); failed == nil {
			return dir, nil
		}
		_ = os.Remove(dir) // made a moment ago, and useless
	}
	return "", failed
}

// setQuota sets the quota, and where it can a weight, so that the group gets its quota on a busy machine too: niceness does not
// count between groups.
func (g *Cgroup) setQuota() error {
	us := strconv.Itoa(int(g.quota * float64(period.Microseconds())))
	all := strconv.Itoa(int(period.Microseconds()))
	if g.v2 {
		_ = writeFile(g.dirs[0], "cpu.weight", "10000")
		return writeFile(g.dirs[0], "cpu.max", us+" "+all)
	}
	_ = writeFile(g.dirs[0], "cpu.shares", "10240")
	if err := writeFile(g.dirs[0], "cpu.cfs_period_us", all); err != nil {
		return err
	}
	return writeFile(g.dirs[0], "cpu.cfs_quota_us", us)
}

// Add moves a process into the group.
func (g *Cgroup) Add(pid int) error {
	for _, dir := range g.dirs {
		if err := writeFile(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// Processes returns the ids of the processes in the group.
func (g *Cgroup) Processes() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(g.dirs[0], "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var ids []int
	for line := range strings.FieldsSeq(string(text)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return nil, fmt.Errorf("overload: cgroup.procs: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// CPUTime returns how much CPU the processes of the group have used so far.
func (g *Cgroup) CPUTime() (time.Duration, error) {
	if !g.v2 {
		text, err := os.ReadFile(filepath.Join(g.dirs[len(g.dirs)-1], "cpuacct.usage"))
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(ns), err
	}
	text, err := os.ReadFile(filepath.Join(g.dirs[0], "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, errors.New("overload: cpu.stat: no usage_usec")
}

// Remove deletes the group. A group whose last process has just ended may be busy for a moment. A nil Cgroup has nothing
// to delete.
func (g *Cgroup) Remove() {
	if g == nil {
		return
	}
	for _, dir := range g.dirs {
		for range 50 {
			if err := os.Remove(dir); !errors.Is(err, syscall.EBUSY) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func writeFile(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644) //nolint:gosec // a kernel file, its mode is not ours
}

// cpuHierarchy finds the file system with the cpu controller: version 1 if that has one, else version 2.
func cpuHierarchy(mounts []byte) (dir string, v2 bool) {
	if dir = mountOf(mounts, "cpu"); dir != "" {
		return dir, false
	}
	return mountOf(mounts, ""), true
}

// mountOf returns where a version 1 controller is mounted, or version 2 for "".
func mountOf(mounts []byte, controller string) string {
	for sc := bufio.NewScanner(bytes.NewReader(mounts)); sc.Scan(); {
		left, right, ok := strings.Cut(sc.Text(), " - ")
		before, after := strings.Fields(left), strings.Fields(right)
		if !ok || len(before) < 5 || len(after) < 3 {
			continue
		}
		switch {
		case controller == "" && after[0] == "cgroup2":
			return before[4]
		case controller != "" && after[0] == "cgroup" && slices.Contains(strings.Split(after[2], ","), controller):
			return before[4]
		}
	}
	return ""
}

// ownPath returns this process's group of a version 1 controller, or of version 2 for "".
func ownPath(own []byte, controller string) string {
	for sc := bufio.NewScanner(bytes.NewReader(own)); sc.Scan(); {
		parts := strings.SplitN(sc.Text(), ":", 3)
		if len(parts) == 3 && (controller == "" && parts[0] == "0" || controller != "" && slices.Contains(strings.Split(parts[1], ","), controller)) {
			return parts[2]
		}
	}
	return "/"
}
