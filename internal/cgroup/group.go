package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

const (
	membershipFile = "proc/self/cgroup"
	mountsFile     = "proc/self/mountinfo"
)

// ErrNotFound is the error of Find where the process is in no CPU control group that it can see.
var ErrNotFound = errors.New("cgroup: no CPU control group found")

// A Group is the calling process's CPU control group together with the groups above it. It keeps the files that hold
// counters open. A Group is not safe for concurrent use.
type Group struct {
	fsys       fs.FS
	version    int
	membership string // the text of /proc/self/cgroup that Find used
	levels     []level
	cpuset     []string // files that may name the CPUs of the group, best first
	cpus       int
	buf        [4096]byte
}

// A Level is one group on the way from the process's own upwards, as read by Levels.
type Level struct {
	Path   string  // in its hierarchy, "/kubepods/pod7/c1"
	Quota  float64 // CPUs that it may use, 0 if it has no quota
	Period time.Duration
	Stat   // Used is 0 and HasUsed false if no accounting covers just this group
}

type level struct {
	path, dir string
	quota     time.Duration
	period    time.Duration
	stat      file // cpu.stat of dir
	usage     file // cpuacct.usage, version 1 only; no name if there is none
}

// Find returns the calling process's group as seen through fsys, which stands for "/", and reads its limits. The error
// is ErrNotFound or says which file could not be read.
func Find(fsys fs.FS) (*Group, error) {
	own, err := fs.ReadFile(fsys, membershipFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	info, err := fs.ReadFile(fsys, mountsFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	g := &Group{fsys: fsys, membership: string(own)}
	member, mounts := parseMembership(g.membership), parseMounts(string(info))
	if !g.findV1(member, mounts) && !g.findV2(member, mounts) {
		return nil, ErrNotFound
	}
	if err := g.ReadLimits(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

func (g *Group) findV1(member membership, mounts []mount) bool {
	own, ok := member.controller["cpu"]
	if !ok {
		return false
	}
	cpu, ok := find(mounts, "cpu", own)
	if !ok {
		return false
	}
	g.version = 1
	acctOwn, hasAcct := member.controller["cpuacct"]
	acct, ok := find(mounts, "cpuacct", acctOwn)
	hasAcct = hasAcct && ok
	g.climb(cpu, own, func(l *level) {
		l.stat = file{fsys: g.fsys, name: path.Join(l.dir, "cpu.stat")}
		// If the cpuacct group is wider than the cpu group, its figure includes other groups.
		if !hasAcct || !within(acctOwn, l.path) {
			return
		}
		group := l.path
		if l.path == own {
			group = acctOwn
		}
		if dir, ok := acct.dir(group); ok {
			l.usage = file{fsys: g.fsys, name: path.Join(dir, "cpuacct.usage")}
		}
	})
	g.findCPUSet(member, mounts)
	if set, ok := member.controller["cpuset"]; ok && !within(acctOwn, set) {
		g.levels[0].usage = file{} // it covers other processes, which may run on other CPUs
	}
	return true
}

func (g *Group) findV2(member membership, mounts []mount) bool {
	if member.unified == "" {
		return false
	}
	m, ok := find(mounts, "", member.unified)
	if !ok {
		return false
	}
	g.version = 2
	g.climb(m, member.unified, func(l *level) {
		l.stat = file{fsys: g.fsys, name: path.Join(l.dir, "cpu.stat")}
	})
	g.findCPUSet(member, mounts)
	return true
}

// climb fills in the levels from the own group up to the mount point.
func (g *Group) climb(m mount, own string, fill func(*level)) {
	for group, dir := range m.upwards(own) {
		g.levels = append(g.levels, level{path: group, dir: dir})
		fill(&g.levels[len(g.levels)-1])
	}
}

// findCPUSet notes which files may hold the CPUs of the own group.
func (g *Group) findCPUSet(member membership, mounts []mount) {
	if own, ok := member.controller["cpuset"]; ok {
		if m, ok := find(mounts, "cpuset", own); ok {
			dir, _ := m.dir(own)
			g.cpuset = append(g.cpuset, path.Join(dir, "cpuset.effective_cpus"), path.Join(dir, "cpuset.cpus"))
		}
	}
	if m, ok := find(mounts, "", member.unified); ok && member.unified != "" {
		// A group in which the controller is off has no such file: the nearest group above it decides.
		for _, dir := range m.upwards(member.unified) {
			g.cpuset = append(g.cpuset, path.Join(dir, "cpuset.cpus.effective"), path.Join(dir, "cpuset.cpus"))
		}
	}
}
